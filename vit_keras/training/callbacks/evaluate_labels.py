"""Evaluates a model of labels, whose average precision depends on all held-out outputs at once."""

import keras
import numpy as np
from keras import ops

from vit_keras import extras
from vit_keras.keras_internals import build_metrics, skip_building
from vit_keras.models import task_of
from vit_keras.training.callbacks.steps import to_float
from vit_keras.training.distribution import Topology
from vit_keras.training.losses import build_loss


class EvaluateLabels(keras.callbacks.Callback):
    """Adds `val_loss` and `val_average_precision` to the logs, instead of the validation of `fit`.

    The metrics of `fit` are sums over batches and replicas, from which an average precision can
    only be estimated. This callback evaluates the model with a metric that keeps all outputs, and
    computes both figures from those of all replicas. They take `8 K + 4` bytes for each held-out
    image. The callback must come before `callbacks`.

    Args:
        model: The compiled model.
        config: The run's `Config`.
        validation: The held-out batches, or this process' part of them.
        topology: The devices and processes of the run.
        callbacks: The other callbacks of the run, which follow the evaluation.
    """

    def __init__(self, model: keras.Model, config, validation, topology: Topology, callbacks):
        super().__init__()
        self.callbacks, self.topology = callbacks, topology
        self.loss, self.validation = (
            build_loss(config, task_of(model)),
            topology.batches(validation),
        )
        images = len(validation) * config.batch_eval // topology.process_count
        with topology.scope():
            self.judge = type(model)(model.input, model.output)
            self.rows = _Rows(images, model.output.shape[-1])
            self.judge.compile(
                optimizer=None,
                loss=self.loss,
                weighted_metrics=[self.rows],
                jit_compile=model.jit_compile,
                steps_per_execution=model.steps_per_execution,
            )
        one = lambda x: keras.KerasTensor((1, *x.shape[1:]), x.dtype)
        build_metrics(self.judge, (one(model.input), one(model.output)))
        skip_building(self.judge)

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_evaluating = False
        callbacks = keras.callbacks.CallbackList([self, *self.callbacks])
        self.judge.evaluate(self.validation, callbacks=callbacks, verbose=0)
        counts, rows = self.topology.read_replicas(self.rows.variables)
        kept = np.concatenate([each[: int(count)] for count, each in zip(counts, rows)])
        targets, outputs = np.split(kept[:, :-1], 2, axis=1)
        logs["val_loss"] = to_float(self.loss(targets, outputs, kept[:, -1]))
        logs["val_average_precision"] = average_precision(targets, outputs, kept[:, -1])

    def on_test_batch_end(self, batch, logs=None):
        self.judge.stop_evaluating = self.model.stop_evaluating


class _Rows(keras.metrics.Metric):
    """Keeps the targets, the outputs and the weight of each image; the result is their number."""

    def __init__(self, images, labels):
        super().__init__(name="images")
        self.images = self.add_variable((), initializer="zeros")
        self.rows = self.add_variable((images, 2 * labels + 1), initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        count = ops.shape(y_pred)[0]
        weights = ops.ones((count, 1)) if sample_weight is None else sample_weight
        columns = (y_true, y_pred, ops.reshape(weights, (-1, 1)))
        added = ops.concatenate([ops.cast(values, self.dtype) for values in columns], axis=1)
        first = ops.clip(ops.cast(self.images, "int32"), 0, self.rows.shape[0] - count)
        kept = ops.convert_to_tensor(self.rows)
        self.rows.assign(ops.slice_update(kept, (first, 0), added))
        self.images.assign(self.images + ops.cast(count, self.dtype))

    def result(self):
        return ops.convert_to_tensor(self.images)


def average_precision(targets: np.ndarray, outputs: np.ndarray, weights: np.ndarray) -> float:
    """The mean of the labels' average precision.

    Unknown targets, NaN, are left out, and so are labels without a known positive.

    Args:
        targets: `(N, K)`.
        outputs: `(N, K)`.
        weights: `(N,)`, one for each image.
    """
    purpose = {"extra": "data", "purpose": "The average precision of held-out images"}
    score = extras.require("sklearn.metrics", **purpose).average_precision_score
    each = []
    for y, scores in zip(targets.T, outputs.T):
        known = (weights > 0) & ~np.isnan(y)
        if y[known].any():
            each.append(score(y[known], scores[known], sample_weight=weights[known]))
    return float(np.mean(each)) if each else 0.0
