"""The metrics for each kind of label. Unknown targets are NaN, and are left out."""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from vit_keras.models import task_of
from vit_keras.support import box_metrics
from vit_keras.support.keras_internals import build_metrics, skip_building
from vit_keras.support.tasks import VOID
from vit_keras.training.losses import build_loss, split_known
from vit_keras.training.topologies import Topology


@keras.saving.register_keras_serializable(package="vit_keras")
class R2(keras.metrics.R2Score):
    """The mean over numbers of the coefficient of determination, 1 - Σ(y - ŷ)² / Σ(y - ȳ)².

    Unknown numbers are left out, and so are outputs whose known numbers are all equal. The
    sums of squares are float32, so numbers should be near 0, as standardized ones are.
    """

    def __init__(self, name="r2", **kwargs):
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch of numbers `(B, K)` and outputs `(B, K)`, with weights `(B,)`."""
        known, y = split_known(ops.cast(y_true, self.dtype))
        weights = ops.cast(known, self.dtype)
        if sample_weight is not None:
            weights *= ops.reshape(ops.cast(sample_weight, self.dtype), (-1, 1))
        super().update_state(y, y_pred, weights)

    def result(self):
        spread = self.squared_sum - ops.square(self.sum) / ops.maximum(self.count, 1e-12)
        each = 1 - self.total_mse / ops.maximum(spread, 1e-12)
        present = ops.cast(spread > 0, each.dtype)  # 0 if none is
        return ops.sum(each * present) / ops.maximum(ops.sum(present), 1.0)


METRICS: dict[str, Callable[[int], Any]] = {  # for kinds that `OF_ALL_OUTPUTS` lacks
    "classes": lambda outputs: ["accuracy"],
    "numbers": lambda outputs: [R2()],  # of standardized numbers
    "masks": lambda outputs: [MeanIoU(outputs), PixelAccuracy(outputs)],
}


@keras.saving.register_keras_serializable(package="vit_keras")
class MeanIoU(keras.metrics.MeanIoU):
    """The intersection over union of true and predicted pixels, averaged over classes.

    Pixels without a class are left out, and so is a class that is neither true nor predicted
    anywhere.

    Args:
        num_classes: K, the number of classes.
        name: The metric's name.
        dtype: The type of the counts of pixels.
        **kwargs: Other entries of a saved configuration.
    """

    def __init__(self, num_classes: int, name="miou", dtype="float32", **kwargs):
        kwargs |= {"ignore_class": VOID, "sparse_y_pred": False}
        super().__init__(num_classes, name, dtype, **kwargs)

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch of masks `(B, H, W)` and logits `(B, H, W, K)`, with weights `(B,)`."""
        if sample_weight is not None:
            sample_weight = ops.reshape(ops.cast(sample_weight, self.dtype), (-1, 1, 1))
            sample_weight = sample_weight * ops.ones_like(y_true, dtype=self.dtype)
        return super().update_state(y_true, y_pred, sample_weight)


@keras.saving.register_keras_serializable(package="vit_keras")
class PixelAccuracy(MeanIoU):
    """The fraction of pixels with the right class."""

    def __init__(self, num_classes: int, name="pixel_accuracy", **kwargs):
        super().__init__(num_classes, name, **kwargs)

    def result(self):
        return ops.trace(self.total_cm) / ops.maximum(ops.sum(self.total_cm), 1e-12)


class EvaluateLabels:
    """Computes `val_loss` and an average precision at the end of an epoch, instead of `fit`.

    The precision is `val_average_precision` for labels, and COCO's `val_ap` for boxes. The metrics
    of `fit` are sums over batches and replicas, which can only estimate an average precision. This
    object evaluates the model with a metric that keeps the targets and outputs of all replicas, in
    float32, and computes both figures from them.

    Args:
        model: The compiled model.
        config: The run's `Config`.
        validation: The held-out batches, or this process's share of them.
        topology: The devices and processes of the run.
    """

    def __init__(self, model: keras.Model, config, validation, topology: Topology):
        self.task, self.topology = task_of(model), topology
        self.loss = build_loss(config, self.task)
        self.validation = topology.batches(validation)
        images = len(validation) * config.batch_eval // topology.process_count
        with topology.scope():
            self.judge = type(model)(model.input, model.output)
            outputs = tuple(model.output.shape[1:])
            is_boxes = self.task.kind == "boxes"  # targets have as many rows as outputs
            self.shapes = (outputs[0], box_metrics.COLUMNS) if is_boxes else outputs, outputs
            self.rows = _Rows(images, self.shapes)
            self.judge.compile(
                optimizer=None,
                loss=self.loss,
                weighted_metrics=[self.rows],
                jit_compile=model.jit_compile,
                steps_per_execution=model.steps_per_execution,
            )
        build_metrics(self.judge, self.shapes[0], model.output.dtype)
        skip_building(self.judge)

    def evaluate(self, callbacks: keras.callbacks.CallbackList | None = None) -> dict[str, float]:
        """Evaluates the model; `callbacks` are called at each step."""
        self.judge.evaluate(self.validation, callbacks=callbacks, verbose=0)
        counts, rows = self.topology.read_replicas(self.rows.variables)
        kept = np.concatenate([each[: int(count)] for count, each in zip(counts, rows)])
        weights = kept[:, -1]
        columns = np.split(kept[:, :-1], [math.prod(self.shapes[0])], axis=1)
        columns = [x.reshape(-1, *shape) for x, shape in zip(columns, self.shapes)]
        figure = OF_ALL_OUTPUTS[self.task.kind](*(x[weights > 0] for x in columns))
        loss = to_float(self.loss(*columns, weights))
        return {"val_loss": loss, f"val_{self.task.row.metric}": figure}


class _Rows(keras.metrics.Metric):
    """Keeps the targets, the outputs and the weight of each image, and counts the images."""

    def __init__(self, images, shapes):
        super().__init__(name="images")
        self.shapes = shapes
        self.images = self.add_variable((), initializer="zeros")
        numbers = sum(map(math.prod, shapes)) + 1
        self.rows = self.add_variable((images, numbers), initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        count = ops.shape(y_pred)[0]
        weights = ops.ones((count, 1)) if sample_weight is None else sample_weight
        if missing := self.shapes[0][0] - y_true.shape[1]:  # rows of no object
            y_true = ops.pad(y_true, ((0, 0), (0, missing), (0, 0)), constant_values=-1)
        columns = [ops.reshape(ops.cast(x, self.dtype), (count, -1)) for x in (y_true, y_pred)]
        columns.append(ops.reshape(ops.cast(weights, self.dtype), (-1, 1)))
        added = ops.concatenate(columns, axis=1)
        first = ops.clip(ops.cast(self.images, "int32"), 0, self.rows.shape[0] - count)
        kept = ops.convert_to_tensor(self.rows)
        self.rows.assign(ops.slice_update(kept, (first, 0), added))
        self.images.assign(self.images + ops.cast(count, self.dtype))

    def result(self):
        return ops.convert_to_tensor(self.images)


def average_precision(targets: np.ndarray, outputs: np.ndarray) -> float:
    """The mean of `label_precisions`; 0 if no label has a known positive."""
    known = [x for x in box_metrics.label_precisions(targets, outputs) if x is not None]
    return float(np.mean(known)) if known else 0.0


def box_precision(targets: np.ndarray, outputs: np.ndarray) -> float:
    """The `box_precision` of a detector's joined outputs `(N, T, K + 1 + 4)`."""
    return box_metrics.box_precision(targets, box_metrics.scored_corners(outputs))


# The figures that need all outputs, by the kind of label.
OF_ALL_OUTPUTS: dict[str, Callable] = {"labels": average_precision, "boxes": box_precision}


def to_float(scalar) -> float:
    """Copies a scalar of the backend to the host."""
    return float(keras.ops.convert_to_numpy(scalar))


@keras.saving.register_keras_serializable(package="vit_keras")
def teacher_entropy(y_true, y_pred):
    """The entropy that `SelfDistillation` outputs beside its loss, `(B, 2)` -> `(B,)`."""
    return y_pred[:, 1]


@keras.saving.register_keras_serializable(package="vit_keras")
def _accuracy(y_true, y_pred):
    return keras.metrics.categorical_accuracy(y_true, ops.mean(y_pred[:, :2], axis=1))


@keras.saving.register_keras_serializable(package="vit_keras")
def _agreement(y_true, y_pred):
    return keras.metrics.categorical_accuracy(y_pred[:, 2], ops.mean(y_pred[:, :2], axis=1))


def run_metrics(model, config) -> list:
    """Makes the metrics that `fit` reports for a run's model, as `compile` takes them.

    With a teacher, they are the accuracy of the student, whose logits are the mean of both heads as
    after training, and its agreement with the teacher. Features have no metrics.
    """
    if config.distill.teacher:
        functions = {"accuracy": _accuracy, "agreement": _agreement}
        functions = {} if config.distill.kind == "features" else functions
    elif config.pretext.is_dino:
        functions = {"teacher_entropy": teacher_entropy}
    elif config.pretext.is_active:
        return ["accuracy"] if config.pretext.predicts_colors else []
    else:
        return METRICS.get(task_of(model).kind, lambda outputs: [])(model.output.shape[-1])
    return [keras.metrics.MeanMetricWrapper(fn, name=name) for name, fn in functions.items()]
