"""The model of a run: built for training, and read from one of the run's checkpoints."""

import os
import pathlib
from collections.abc import Sequence

import keras

from vit_keras import data, models, runs
from vit_keras.config import Config
from vit_keras.experiments.final_outputs import restore_numbers
from vit_keras.experiments.starting_point import initial_model
from vit_keras.experiments.teacher import open_teacher
from vit_keras.tasks import Task
from vit_keras.training import checkpoints, weight_average
from vit_keras.training.loop import compile_model


def build_compiled(config, class_names, task):
    """The compiled model that a run trains, and the encoder or student in it: mostly itself.

    Args:
        config: The run, as `initial_model` takes it.
        class_names: As for `initial_model`.
        task: As for `initial_model`.
    """
    model = encoder = initial_model(config, class_names, task)
    if config.pretext.is_active:
        steps = config.total_steps, config.optimizer.accumulation_steps
        model = models.pretext_model(encoder, config.pretext, config.seed, *steps)
    if config.lora.is_active:
        lora = config.lora
        models.add_lora(model, lora.rank, lora.layers, lora.alpha, lora.train, config.seed)
    if config.distill.is_active:
        teacher = open_teacher(config.distill)
        model = models.distillation_model(encoder, teacher, config.distill, config.seed)
    compile_model(model, config)
    return model, encoder


def trained_part(
    model: keras.Model, config: Config, class_names: Sequence[str], task: Task
) -> keras.Model:
    """The encoder or student of a trained model, mostly itself, which returns numbers as they are.

    Args:
        model: A model of `build_compiled`, after training.
        config: The run.
        class_names: As for `initial_model`.
        task: As for `initial_model`.
    """
    if config.pretext.is_active or config.distill.is_active:
        copy = models.copy_encoder if config.pretext.is_active else models.copy_student
        model = copy(model, initial_model(config, class_names, task))
    restore_numbers(model)
    return model


def open_checkpoint(path: str | os.PathLike) -> keras.Model:
    """The model of a run after some of its updates, whichever processes wrote the checkpoint.

    It has the weights that the run would end with there: their average with
    `optimizer.ema_decay`, and with merged adapters. It is not calibrated.

    Args:
        path: The folder of the checkpoint, such as `runs/pets/checkpoints/step_000000500`, in the
            folder of its run.

    Returns:
        The model, compiled as in the run unless the run trained more than the model.

    Raises:
        FileNotFoundError: The checkpoint is not in the folder of a run.
        ValueError: The checkpoint is damaged, or does not hold a whole model.

    Example:
        ```python
        model = experiments.open_checkpoint("runs/pets/checkpoints/step_000000500")
        vit_keras.weights.save(model, "pets.npz", format="google")
        ```
    """
    path = pathlib.Path(path).absolute()
    config = runs.recorded_config(folder := path.parents[1])
    if config is None:
        raise FileNotFoundError(
            "A checkpoint is read beside the configuration of its run. Received: "
            f"{str(path)!r}, without a config.yaml in {str(folder)!r}. Give it inside its run's "
            "folder"
        )
    _check(path, config)
    names = data.recorded_classes(folder)
    shares = (1 / len(names),) * len(names) if names else None  # the loss is not used
    described = names, Task(config.task, shares=shares)
    model, _ = build_compiled(config, *described)
    try:
        checkpoints.load(model, path)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"The checkpoint {str(path)!r} cannot be read ({error}). Give another step of the run"
        ) from error
    weight_average.use(model)
    model = trained_part(model, config, *described)
    return models.merge_lora(model) if config.lora.is_active else model


def _check(path, config):
    """Refuses checkpoints from which no model can be made without the run."""
    if config.cache_features or config.task == "numbers":
        cause = "cache_features=true" if config.cache_features else "task=numbers"
        lacks = "the frozen layers" if config.cache_features else "the mean of the labels"
        raise ValueError(
            f"A checkpoint of a run with {cause} lacks {lacks}, and cannot be opened alone. "
            f"Received: {str(path)!r}. Give the folder of the run after its last update"
        )
