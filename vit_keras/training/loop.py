"""`model.fit` over the steps of a run that are left, in epochs of `eval_every` updates."""

import contextlib
import signal
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras

from vit_keras.runs import Run
from vit_keras.training import callbacks, checkpoints, weight_average
from vit_keras.training.distribution import ALONE, Topology
from vit_keras.training.layer_rules import freeze
from vit_keras.training.losses import build_loss
from vit_keras.training.metrics_table import best_row, out_of_patience
from vit_keras.training.optimizers import build_optimizer
from vit_keras.training.rollbacks import NonFinite, read_rollbacks, record_rollback, slowed


class Segment(NamedTuple):
    """One call of `fit`: epochs `first` up to `last`, each of `steps` updates."""

    first: int
    last: int
    steps: int


def segments(start_step: int, total_steps: int, eval_every: int) -> list[Segment]:
    """The calls of `fit` from `start_step` on: what is left of an epoch, whole ones, the rest."""
    found, step = [], start_step
    while step < total_steps:
        epoch = step // eval_every
        steps = min((epoch + 1) * eval_every, total_steps) - step
        whole = (total_steps - step) // eval_every if steps == eval_every else 1
        found.append(Segment(epoch, epoch + whole, steps))
        step += whole * steps
    return found


def compile_model(model: keras.Model, config) -> None:
    """Compiles `model` with a run's loss and optimiser, its frozen layers frozen.

    Of `accumulation_steps` parts of an update each is a batch of `fit`. Raises ValueError for
    `steps_per_execution` on torch, where Keras runs one step at a time.
    """
    looks = config.steps_per_execution
    if looks > 1 and keras.backend.backend() == "torch":
        raise ValueError(
            "`steps_per_execution` must be 1 on the torch backend, where Keras runs one step at a "
            f"time. Received: {looks}"
        )
    freeze(model, config.optimizer.freeze)
    model.compile(
        optimizer=build_optimizer(config.optimizer, config.total_steps, model),
        loss=build_loss(config),
        weighted_metrics=_metrics(config),  # the padding of held-out batches weighs 0
        steps_per_execution=looks * config.optimizer.accumulation_steps if looks > 1 else 1,
    )
    model.optimizer.build(model.trainable_variables)
    one = lambda x: keras.KerasTensor((1, *x.shape[1:]), x.dtype)
    targets = one(model.output)
    if config.pretext.is_active and config.pretext.predicts_colours:
        targets = keras.KerasTensor(targets.shape[:-1], "int32")
    batch = keras.tree.map_structure(one, model.input), targets
    model._symbolic_build(data_batch=batch)  # makes the metrics' variables: a checkpoint has them


def _metrics(config):
    return [] if config.pretext.is_active and not config.pretext.predicts_colours else ["accuracy"]


def train(
    model: keras.Model,
    run: Run,
    batches: Callable,
    validation,
    topology: Topology = ALONE,
    more: Sequence = (),
) -> list[dict[str, float]]:
    """Trains a compiled `model` from its newest checkpoint on; returns the rows recorded.

    `batches(start)` gives the training data from a batch of fit on: with
    `optimizer.accumulation_steps` = k, a kth part of an update. Of several processes each gives
    its part of them, and of `validation`. `more` callbacks come before those that record logs.

    At the end `model` has the weights that the run is to be known by: the last ones, with
    `patience` those of the best held-out accuracy; their average where `ema_decay` is set.

    Raises NonFinite after a loss that is not finite, where `on_nan` and `max_rollbacks` do not let
    the run go back; SystemExit 143 after SIGTERM.
    """
    if rollbacks := len(read_rollbacks(run.folder)):
        compile_model(model, slowed(run.config, rollbacks))
    while True:
        try:
            rows = _train_from_checkpoint(model, run, batches, validation, topology, more)
            break
        except NonFinite as error:
            _go_back(model, run, error)
    topology.gather(0)  # the chief has written the last checkpoint
    if run.config.patience is not None and rows:
        _load_best(model, run, rows)
    if rows:
        weight_average.use(model)
    return rows


def _restored(model, run, topology) -> int:
    """The step to go on from; with one to roll back to, if that is what is wanted."""
    start = checkpoints.restore(model, run.checkpoints, topology)
    topology.prepare(model)
    if run.config.on_nan == "rollback" and checkpoints.newest(run.checkpoints) is None:
        checkpoints.save(model, run.checkpoints, 0, run.config.keep_checkpoints)
    return start


def _train_from_checkpoint(model, run, batches, validation, topology, more):
    config, start = run.config, _restored(model, run, topology)
    recorder = callbacks.Recorder(config, start, run.folder, topology)
    if start >= config.total_steps or out_of_patience(recorder.rows, config.patience):
        return recorder.rows
    progress = callbacks.Progress(config, start)
    losses = callbacks.StopOnNonFinite(config, start)
    images = None if start else keras.tree.flatten(next(iter(batches(0))))[0]
    with _noted(signal.SIGTERM) as signals, contextlib.closing(progress):
        keep = callbacks.StateSaver(
            config, start, run.checkpoints, recorder, losses, signals, topology
        )
        shown = []
        if topology.is_chief:
            board = callbacks.TensorBoard(run, recorder, validation, images)
            shown = [progress, board, *callbacks.tracker_callbacks(run)]
        watch = [
            callbacks.RestoreFitState(config, start, model),
            losses,
            callbacks.EvaluateAverage(),
            callbacks.PatchKeepRates(config),
            *more,
            recorder,
            *shown,
            callbacks.Patience(recorder, config.patience),
            keep,
        ]
        batches_from = lambda step: topology.batches(batches(step))
        _fit(model, config, recorder, watch, batches_from, topology.batches(validation))
    return recorder.rows


def _fit(model, config, recorder, watch, batches_from, held_out):
    """`fit`, one evaluation at a time, from the step of `recorder` to the last or an early stop."""
    parts = config.optimizer.accumulation_steps
    for segment in segments(recorder.step, config.total_steps, config.eval_every):
        model.fit(
            batches_from(recorder.step * parts),
            initial_epoch=segment.first,
            epochs=segment.last,
            steps_per_epoch=segment.steps * parts,
            validation_data=held_out,
            callbacks=callbacks.CallbackList(watch, add_history=True, model=model),
            shuffle=False,  # the pipeline has shuffled
            verbose=0,
        )
        if model.stop_training:
            break


def _go_back(model, run, error):
    """Records a rollback and compiles `model` with half the rate, or raises `error` in full."""
    config, rollbacks = run.config, len(read_rollbacks(run.folder))
    last = checkpoints.newest(run.checkpoints)
    if config.on_nan == "stop" or rollbacks >= config.max_rollbacks:
        tried = f" ({rollbacks} of {config.max_rollbacks} rollbacks)" if rollbacks else ""
        raise NonFinite(
            f"training stopped{tried}: {error}. The last good checkpoint is {last}. Give a new "
            "--workdir and a smaller --optimizer.learning_rate, or --on_nan rollback"
        ) from error
    record_rollback(run.folder, str(error), str(last))
    slow = slowed(config, rollbacks + 1)
    print(f"{error}: back to {last}, learning rate {slow.optimizer.learning_rate:g} from now on")
    compile_model(model, slow)


def _load_best(model, run, rows):
    best = best_row(rows)["step"]
    path = run.checkpoints / f"step_{best:09d}"
    try:
        checkpoints.load(model, path)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"The best checkpoint {path} is damaged ({error}). Delete the checkpoints from it on, "
            "and the same command trains those steps again"
        ) from error


@contextlib.contextmanager
def _noted(number):
    """A list that a signal is put into, instead of what it does; a second one does it."""
    signals = []
    if threading.current_thread() is not threading.main_thread():
        yield signals  # only the main thread may set handlers
        return

    def note(*_):
        signal.signal(number, previous)
        signals.append(number)

    previous = signal.signal(number, note)
    try:
        yield signals
    finally:
        signal.signal(number, previous)
