"""`model.fit` over the steps of a run that are left, in epochs of `eval_every` updates."""

from collections.abc import Callable
from typing import NamedTuple

import keras

from vit_keras.runs import Run
from vit_keras.training import checkpoints
from vit_keras.training.callbacks import Checkpoints, Progress, Recorder
from vit_keras.training.optimizers import build_optimizer


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
    """Compiles `model` with a run's loss and optimiser."""
    model.compile(
        optimizer=build_optimizer(config.optimizer, config.total_steps, model),
        loss=keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=config.label_smoothing
        ),
        metrics=["accuracy"],
    )
    model.optimizer.build(model.trainable_variables)


def train(model: keras.Model, run: Run, batches: Callable, validation) -> list[dict[str, float]]:
    """Trains a compiled `model` from its newest checkpoint on; returns the rows recorded.

    `batches(start_step)` gives the training data from a step on.
    """
    config = run.config
    start = checkpoints.restore(model, run.checkpoints)
    progress = Progress(start, config.total_steps, config.batch)
    recorder = Recorder(run.folder, start, config.batch)
    watch = [
        recorder,
        progress,
        Checkpoints(run.checkpoints, start, config),
        keras.callbacks.TensorBoard(str(run.folder / "tensorboard"), write_graph=False),
    ]
    for segment in segments(start, config.total_steps, config.eval_every):
        model.fit(
            batches(recorder.step),
            initial_epoch=segment.first,
            epochs=segment.last,
            steps_per_epoch=segment.steps,
            validation_data=validation,
            callbacks=watch,
            shuffle=False,  # the pipeline has shuffled
            verbose=0,
        )
    progress.close()
    return recorder.rows
