"""Calls `model.fit` for the remaining updates of a run, in epochs of `eval_every` updates.

TensorBoard's files and the callbacks of MLflow and W&B get each epoch's row too.
"""

import dataclasses
import io
import time
from collections.abc import Callable, Sequence

import keras
import numpy as np

from vit_keras import runs
from vit_keras.models import task_of
from vit_keras.runs import Run
from vit_keras.support import extras
from vit_keras.support.box_metrics import COLUMNS
from vit_keras.support.checks import read_json
from vit_keras.support.keras_internals import build_metrics
from vit_keras.training import callbacks, checkpoints
from vit_keras.training.losses import SetPrediction, build_loss
from vit_keras.training.metrics import OF_ALL_OUTPUTS, EvaluateLabels, run_metrics
from vit_keras.training.optimizers import build_optimizer, freeze, use_average
from vit_keras.training.topologies import ALONE, Topology

PICTURES = 8  # in TensorBoard


def compile_model(model: keras.Model, config) -> None:
    """Freezes layers of `model` and compiles it with the loss and optimizer of a run's `Config`.

    Raises:
        ValueError: If `optimizer` does not fit the model (see `freeze` and `build_optimizer`).
    """
    freeze(model, config.optimizer.freeze)
    compile_frozen(model, config)


def compile_frozen(model: keras.Model, config) -> None:
    """Does the same as `compile_model`, for a model whose layers are already frozen."""
    executed = config.steps_per_execution
    loss = build_loss(config, task_of(model))
    needs_host = isinstance(loss, SetPrediction) and keras.backend.backend() == "tensorflow"
    model.compile(
        optimizer=build_optimizer(config.optimizer, config.total_steps, model),
        loss=loss,
        weighted_metrics=run_metrics(model, config),  # padding weighs 0
        steps_per_execution=executed * config.optimizer.accumulation_steps if executed > 1 else 1,
        jit_compile=False if needs_host else "auto",
    )
    model.optimizer.build(model.trainable_variables)
    kind = task_of(model).kind if config.learns_labels else None
    shape, dtype = model.output.shape[1:], model.output.dtype  # of the targets
    if kind == "boxes":
        shape = (1, COLUMNS)
    if kind == "masks" or (config.pretext.is_active and config.pretext.predicts_colors):
        shape, dtype = shape[:-1], "int32"
    if config.distill.teacher:
        shape = shape[-1:]
    build_metrics(model, shape, dtype)  # creates the metrics' variables for checkpoints


def compiled_step(model: keras.Model, images: int):
    """JAX's program for a training step of a compiled model on `images` images, as in `fit`."""
    import jax

    groups = (
        *(model.trainable_variables, model.non_trainable_variables),
        *(model.optimizer.variables, model.metrics_variables),
    )
    state = tuple([variable.value for variable in group] for group in groups)
    used = keras.distribution.distribution()

    def array(*shape):
        layout = used.get_data_layout(shape).backend_layout if used else None
        return jax.ShapeDtypeStruct(shape, "float32", sharding=layout)

    data = array(images, *model.input_shape[1:]), array(images, *model.output_shape[1:])
    shardings = (None, jax.tree.map(lambda x: x.sharding, state)) if used else None
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=shardings)
    return step.lower(state, data).compile()


def train(
    model: keras.Model,
    run: Run,
    batches: Callable,
    validation,
    topology: Topology = ALONE,
    more_callbacks: Sequence[keras.callbacks.Callback] = (),
) -> list[dict[str, float]]:
    """Trains a compiled model from the newest checkpoint of `run` to the end of the run.

    Afterward, `model` has the weights that represent the run: the last ones or, with `patience`,
    those with the best held-out accuracy (for other kinds of labels, the best main figure). With
    `ema_decay`, they are the average of the weights.

    Args:
        model: The model, compiled by `compile_model` with `run.config`.
        run: The run's folder and configuration.
        batches: A function that takes the number of a batch and returns the training data from that
            batch on. With `optimizer.accumulation_steps` = k, a batch is a kth of an update's
            images. With several processes, it is this process's share of those.
        validation: The held-out batches, or this process's share of them.
        topology: The devices and processes of the run.
        more_callbacks: Callbacks that add to the logs; they run before the logs are recorded.

    Returns:
        The rows of `metrics.json`, one for each evaluation.

    Raises:
        NonFinite: If a loss is not finite.
        SystemExit: With code 143 after SIGTERM, or 130 after Ctrl-C, once a checkpoint is written.
    """
    try:
        rows = _train_from_checkpoint(model, run, batches, validation, topology, more_callbacks)
    except runs.NonFinite as error:
        raise runs.NonFinite(
            f"training stopped: {error}. Last good checkpoint: "
            f"{checkpoints.newest(run.checkpoints) or 'none'}. Give a new --workdir and a smaller "
            "--optimizer.learning_rate"
        ) from error
    topology.gather(0)  # waits until the chief has written the last checkpoint
    if run.config.patience is not None and (best := runs.best_row(rows)):
        remedy = "Delete it and all later ones; the same command then trains those steps again"
        checkpoints.load(model, run.checkpoints / f"step_{best['step']:09d}", remedy=remedy)
    if rows:
        use_average(model)
    return rows


def _train_from_checkpoint(model, run, batches, validation, topology, more_callbacks):
    config = run.config
    start = checkpoints.restore(model, run.checkpoints, topology)
    topology.prepare(model)
    rows = _recorded_rows(run, start, topology)
    if start >= config.total_steps or runs.out_of_patience(rows, config.patience):
        return rows
    board = labels = None
    if topology.is_chief:
        if extras.is_installed("tensorboard"):
            is_first = not (start or config.cache_features)
            board = TensorBoard(run, next(iter(batches(0))) if is_first else None)
        if config.tracker != "none":
            more_callbacks = [*more_callbacks, TRACKERS[config.tracker](run)]
    plain = config.learns_labels and not config.distill.teacher
    if plain and task_of(model).kind in OF_ALL_OUTPUTS:  # not a sum over batches
        labels, validation = EvaluateLabels(model, config, validation, topology), None
    else:
        validation = topology.batches(validation)
    common = model, run, rows, start, topology
    with callbacks.RunCallbacks(*common, more_callbacks, labels, board) as watch:
        _fit(model, run, watch, lambda number: topology.batches(batches(number)), validation)
    return rows


def _recorded_rows(run, start, topology):
    """Returns the rows up to the checkpoint of update `start`; raises if the run has lost any."""
    path = run.checkpoints / f"step_{start:09d}" / "meta.json"
    rows = runs.read_rows(run.folder, read_json(path)["rows"] if path.exists() else 0)
    rows = [row for row in rows if row["step"] <= start]
    if rows and topology.is_chief:
        runs.write_rows(run.folder, rows)
    return rows


def _fit(model, run, watch, batches_from, validation):
    """Calls `fit` until the last update, or until the run stops early.

    The first call finishes an epoch that has begun, the next one trains the whole epochs, and the
    last one trains the rest.
    """
    total, every = run.config.total_steps, run.config.eval_every
    accumulated = run.config.optimizer.accumulation_steps
    while watch.step < total and not model.stop_training:
        start = watch.step
        epoch, steps = start // every, min(every - start % every, total - start)
        epochs = (total - start) // every if steps == every else 1
        model.fit(
            batches_from(start * accumulated),
            initial_epoch=epoch,
            epochs=epoch + epochs,
            steps_per_epoch=steps * accumulated,
            validation_data=validation,
            callbacks=watch,
            shuffle=False,  # the pipeline has already shuffled
            verbose=0,
        )


class TensorBoard:
    """Writes each recorded row to `tensorboard/train` and `tensorboard/validation`.

    Args:
        run: The run.
        batch: Training data, whose images `(B, H, W, C)`, or the first view of each, are shown
            once, at the beginning of a run.
    """

    def __init__(self, run: Run, batch=None):
        self.files = {}
        for name in ("train", "validation"):
            (folder := run.folder / "tensorboard" / name).mkdir(parents=True, exist_ok=True)
            self.files[name] = folder / f"events.out.tfevents.{time.time():017.6f}"
            self._append(name, file_version="brain.Event:2")
        if batch is not None:
            images = np.asarray(keras.tree.flatten(batch)[0][:PICTURES], "float32")
            images = images if images.ndim == 4 else images[:, 0]
            pictures = [_picture(*pair) for pair in enumerate(images)]
            self._append("train", step=0, summary={"value": pictures})

    def write(self, rows: list[dict[str, float]]) -> None:
        """Writes the last row."""
        values: dict[str, list] = {"train": [], "validation": []}
        for name, value in rows[-1].items():
            tag = name.removeprefix("val_")
            if name != "step":
                of = values["train" if tag == name else "validation"]
                of.append({"tag": tag, "simple_value": value})
        for name, numbers in values.items():
            self._append(name, step=int(rows[-1]["step"]), summary={"value": numbers})

    def _append(self, name, **fields):
        """Appends an event. TensorBoard's `EventFileWriter` imports TensorFlow if installed."""
        events = extras.require("tensorboard.compat.proto.event_pb2")
        records = extras.require("tensorboard.summary.writer.record_writer")
        event = events.Event(wall_time=time.time(), **fields)
        with open(self.files[name], "ab") as file:
            records.RecordWriter(file).write(event.SerializeToString())


def _picture(number, image):
    """The summary of an image `(H, W, C)`, stretched to [0, 255], with three channels or one."""
    image, file = image[..., : 3 if image.shape[-1] >= 3 else 1], io.BytesIO()
    keras.utils.array_to_img(image, "channels_last").save(file, "PNG")
    fields = dict(zip(("height", "width", "colorspace"), image.shape))
    fields["encoded_image_string"] = file.getvalue()
    return {"tag": f"augmented/{number}", "image": fields}


def _mlflow(run):
    import mlflow
    from mlflow.keras import MlflowCallback

    mlflow.start_run(run_name=run.folder.name)
    return MlflowCallback()


def _wandb(run):
    """Continues the W&B run that the name of the folder identifies."""
    import wandb
    from wandb.integration.keras import WandbMetricsLogger

    config = dataclasses.asdict(run.config)
    wandb.init(id=run.folder.name, resume="allow", dir=str(run.folder), config=config)
    return WandbMetricsLogger()


TRACKERS = {"mlflow": _mlflow, "wandb": _wandb}
