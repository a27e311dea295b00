"""Calls `model.fit` for the remaining updates of a run, in epochs of `eval_every` updates."""

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras

from vit_keras.models import task_of
from vit_keras.runs import Run
from vit_keras.support.boxes import COLUMNS
from vit_keras.support.keras_internals import build_metrics
from vit_keras.training import callbacks, checkpoints
from vit_keras.training.callbacks import StopSignals
from vit_keras.training.checkpoints import CheckpointWriter
from vit_keras.training.distribution import ALONE, Topology
from vit_keras.training.losses import run_loss
from vit_keras.training.metrics import OF_ALL_OUTPUTS, EvaluateLabels, run_metrics
from vit_keras.training.optimizers import build_optimizer, freeze, use_average
from vit_keras.training.records import (
    NonFinite,
    best_row,
    halve_rate,
    out_of_patience,
    read_rollbacks,
    record_rollback,
)
from vit_keras.training.set_prediction import SetPrediction
from vit_keras.training.trackers import tensorboard_callbacks, tracker_callbacks


class Segment(NamedTuple):
    """One call of `fit`: the epochs from `first` up to `last`, each with `steps` updates."""

    first: int
    last: int
    steps: int


def segments(start_step: int, total_steps: int, eval_every: int) -> list[Segment]:
    """Splits the updates from `start_step` on into calls of `fit`.

    The first call finishes an epoch that has begun, the next one trains the whole epochs, and the
    last one trains the rest.
    """
    calls, step = [], start_step
    while step < total_steps:
        epoch = step // eval_every
        steps = min((epoch + 1) * eval_every, total_steps) - step
        epochs = (total_steps - step) // eval_every if steps == eval_every else 1
        calls.append(Segment(epoch, epoch + epochs, steps))
        step += epochs * steps
    return calls


def compile_model(model: keras.Model, config) -> None:
    """Freezes layers of `model` and compiles it with the loss and optimizer of a run's `Config`.

    Raises:
        ValueError: If `steps_per_execution` is above 1 on torch, where Keras runs one step at a
            time, or if `optimizer` does not fit the model (see `freeze` and `build_optimizer`).
    """
    freeze(model, config.optimizer.freeze)
    compile_frozen(model, config)


def compile_frozen(model: keras.Model, config) -> None:
    """Does the same as `compile_model`, for a model whose layers are already frozen."""
    executed = config.steps_per_execution
    if executed > 1 and keras.backend.backend() == "torch":
        raise ValueError(
            "`steps_per_execution` must be 1 on the torch backend, where Keras runs one step at a "
            f"time. Received: {executed}"
        )
    loss = run_loss(model, config)
    needs_host = isinstance(loss, SetPrediction) and keras.backend.backend() == "tensorflow"
    model.compile(
        optimizer=build_optimizer(config.optimizer, config.total_steps, model),
        loss=loss,
        weighted_metrics=run_metrics(model, config),  # padding weighs 0
        steps_per_execution=executed * config.optimizer.accumulation_steps if executed > 1 else 1,
        jit_compile=False if needs_host else "auto",
    )
    model.optimizer.build(model.trainable_variables)
    one = lambda x: keras.KerasTensor((1, *x.shape[1:]), x.dtype)
    targets = one(model.output)
    kind = task_of(model).kind if config.learns_labels else None
    if kind == "boxes":
        targets = keras.KerasTensor((1, 1, COLUMNS))
    if kind == "masks" or (config.pretext.is_active and config.pretext.predicts_colors):
        targets = keras.KerasTensor(targets.shape[:-1], "int32")
    if config.distill.is_active:
        targets = keras.KerasTensor((1, model.output.shape[-1]))
    batch = keras.tree.map_structure(one, model.input), targets
    build_metrics(model, batch)  # creates the metrics' variables for checkpoints


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
    the weights with the best held-out accuracy or, for another kind of label, the best figure. With
    `ema_decay`, they are the average of the weights.

    Args:
        model: The model, compiled by `compile_model` with `run.config`.
        run: The run's folder and configuration.
        batches: A function that takes the number of a batch and returns the training data from this
            batch on. With `optimizer.accumulation_steps` = k, a batch is a kth of an update's
            images. With several processes, it is this process's share of those.
        validation: The held-out batches, or this process's share of them.
        topology: The devices and processes of the run.
        more_callbacks: Callbacks that add to the logs; they run before the logs are recorded.

    Returns:
        The rows of `metrics.json`, one for each evaluation.

    Raises:
        NonFinite: If a loss is not finite, and `on_nan` and `max_rollbacks` do not allow the run to
            go back.
        SystemExit: With code 143 after SIGTERM, or 130 after Ctrl-C, once a checkpoint is written.
    """
    if rollbacks := len(read_rollbacks(run.folder)):
        compile_frozen(model, halve_rate(run.config, rollbacks))
    while True:
        try:
            rows = _train_from_checkpoint(model, run, batches, validation, topology, more_callbacks)
            break
        except NonFinite as error:
            _go_back(model, run, error)
    topology.gather(0)  # waits until the chief has written the last checkpoint
    if run.config.patience is not None and (best := best_row(rows)):
        _load_best(model, run, best["step"])
    if rows:
        use_average(model)
    return rows


def _train_from_checkpoint(model, run, batches, validation, topology, more_callbacks):
    start = _restore(model, run, topology)
    recorder = callbacks.Recorder(run, start, topology)
    due = _evaluation_is_due(run.config, start, recorder.rows)
    ended = start >= run.config.total_steps or out_of_patience(recorder.rows, run.config.patience)
    if ended and not due:
        return recorder.rows
    progress = callbacks.Progress(run, recorder)
    images = None if start or run.config.cache_features else _images(next(iter(batches(0))))
    shown = []
    if topology.is_chief:
        boards = tensorboard_callbacks(run, recorder, validation, images)
        shown = [progress, *boards, *tracker_callbacks(run)]
    signals = StopSignals()
    with signals.collected(), contextlib.closing(progress), CheckpointWriter(topology) as writer:
        loss_check = callbacks.StopOnNonFinite(run, start)
        watching = [
            callbacks.RestoreFitState(run, start, model, topology),
            loss_check,
            callbacks.EvaluateAverage(),
            callbacks.PatchKeepRates(run),
            *more_callbacks,
            recorder,
            *shown,
            callbacks.Patience(run, recorder),
            callbacks.StateSaver(run, recorder, loss_check, signals, writer, topology),
        ]
        batches_from = lambda number: topology.batches(batches(number))
        if _needs_all_outputs(model, run.config):
            first = EvaluateLabels(model, run.config, validation, topology, watching)
            watching, validation = [first, *watching], None
        else:
            validation = topology.batches(validation)
        if due:
            _evaluate(model, (start - 1) // run.config.eval_every, watching, validation)
        if not model.stop_training:
            _fit(model, run, recorder, watching, batches_from, validation)
    return recorder.rows


def _needs_all_outputs(model, config):
    """Whether the figure for held-out images is not a sum over batches."""
    is_plain = config.learns_labels and not config.distill.is_active
    return is_plain and task_of(model).kind in OF_ALL_OUTPUTS


def _images(batch):
    """The images of a batch `(B, H, W, C)`, or the first view of each."""
    images = keras.tree.flatten(batch)[0]
    return images if len(images.shape) == 4 else images[:, 0]


def _evaluation_is_due(config, step, rows):
    """Whether the run was stopped during the evaluation after this update, before its row."""
    ends_epoch = step % config.eval_every == 0 or step == config.total_steps
    return step > 0 and ends_epoch and (not rows or rows[-1]["step"] != step)


def _evaluate(model, epoch, watching, validation):
    """Ends an epoch whose updates are done, as `fit` does."""
    watching = callbacks.CallbackList(watching, add_history=True, model=model)
    watching.on_train_begin()
    watching.on_epoch_begin(epoch)
    logs = model.get_metrics_result()
    if validation is not None:
        held_out = model.evaluate(validation, callbacks=watching, verbose=0, return_dict=True)
        logs |= {f"val_{name}": value for name, value in held_out.items()}
    watching.on_epoch_end(epoch, logs)
    watching.on_train_end(logs)


def _restore(model, run, topology) -> int:
    """Restores the newest checkpoint, and writes one if `on_nan` may need it; returns the step."""
    start = checkpoints.restore(model, run.checkpoints, topology)
    topology.prepare(model)
    if run.config.on_nan == "rollback" and checkpoints.newest(run.checkpoints) is None:
        checkpoints.save(model, run.checkpoints, 0, run.config.keep_checkpoints)
    return start


def _fit(model, run, recorder, watching, batches_from, validation):
    """Calls `fit` for each segment, until the last update or until the run stops early."""
    config = run.config
    accumulated = config.optimizer.accumulation_steps
    for segment in segments(recorder.step, config.total_steps, config.eval_every):
        model.fit(
            batches_from(recorder.step * accumulated),
            initial_epoch=segment.first,
            epochs=segment.last,
            steps_per_epoch=segment.steps * accumulated,
            validation_data=validation,
            callbacks=callbacks.CallbackList(watching, add_history=True, model=model),
            shuffle=False,  # the pipeline has already shuffled
            verbose=0,
        )
        if model.stop_training:
            break


def _go_back(model, run, error):
    """Records a rollback and compiles `model` with half the rate, or raises a detailed error."""
    config, rollbacks = run.config, len(read_rollbacks(run.folder))
    last = checkpoints.newest(run.checkpoints)
    if config.on_nan == "stop" or rollbacks >= config.max_rollbacks:
        tried = f" ({rollbacks} of {config.max_rollbacks} rollbacks)" if rollbacks else ""
        raise NonFinite(
            f"training stopped{tried}: {error}. The last good checkpoint is {last}. Give a new "
            "--workdir and a smaller --optimizer.learning_rate, or --on_nan rollback"
        ) from error
    record_rollback(run.folder, str(error), str(last))
    slower = halve_rate(config, rollbacks + 1)
    rate = slower.optimizer.learning_rate
    print(f"{error}: back to {last}, learning rate {rate:g} from now on")
    compile_frozen(model, slower)


def _load_best(model, run, step):
    path = run.checkpoints / f"step_{step:09d}"
    try:
        checkpoints.load(model, path)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"The best checkpoint {path} is damaged ({error}). Delete this checkpoint and all "
            "later ones; the same command then trains those steps again"
        ) from error
