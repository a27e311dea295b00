"""The model of a run: builds it for training, opens it from checkpoints, and shows its images."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

import keras
import numpy as np

from vit_keras import data, evaluation, models, runs
from vit_keras.config import Config, PretextConfig
from vit_keras.experiments.starting_point import complete_model, initial_model, open_teacher
from vit_keras.models import scale_head
from vit_keras.support.tasks import Task
from vit_keras.training import checkpoints
from vit_keras.training.loop import compile_model
from vit_keras.training.optimizers import use_average


def build_compiled(config, class_names, task):
    """Returns the compiled model of a run, and its encoder or student, or the model again.

    Args:
        config: The run, as for `initial_model`.
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
    """Returns the part of a trained model to save: its encoder or student, or the model itself.

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
    """Opens the model in a checkpoint of a run, whichever processes wrote it.

    It has the weights that the run would have saved at that update: averaged with
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
            "A checkpoint needs the configuration of its run. Received: "
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
    use_average(model)
    model = trained_part(model, config, *described)
    return models.merge_lora(model) if config.lora.is_active else model


def _check(path, config):
    """Refuses checkpoints that need other files of the run to make a model."""
    if config.cache_features or config.task == "numbers":
        cause = "cache_features=true" if config.cache_features else "task=numbers"
        lacks = "the frozen layers" if config.cache_features else "the mean of the labels"
        raise ValueError(
            f"A checkpoint of a run with {cause} lacks {lacks}, and cannot be opened alone. "
            f"Received: {str(path)!r}. Give the folder of the run after its last update"
        )


def restore_numbers(model: keras.Model) -> None:
    """Changes the head's weights so that a model returns numbers instead of standardized ones.

    Drops the fields of any model's task that only training needs.
    """
    if model.task.mean is not None:
        scale_head(model, model.task.std, model.task.mean)
    model.task = Task(model.task.kind)


def fit_to_development(
    model: keras.Model, outputs: np.ndarray, labels: np.ndarray, calibrate: bool
) -> np.ndarray:
    """Fits what must be fitted on a development split, not on training or test images.

    With `calibrate`, the head's weights are divided by a temperature. Each label gets the threshold
    that gives the highest F1. The task gets the quantiles and floors of `evaluation.conformal`.

    Args:
        model: The trained model; changed in place.
        outputs: Its logits on the development split, `(N, K)`.
        labels: The labels of the development split.
        calibrate: Whether to fit a temperature.

    Returns:
        The outputs of the changed model.
    """
    if calibrate:
        temperature = evaluation.fit_temperature(outputs, labels, model.task)
        scale_head(model, 1 / temperature)
        model.task = dataclasses.replace(model.task, temperature=temperature)
        outputs = outputs / np.float32(temperature)
    if model.task.kind == "labels":
        thresholds = evaluation.best_thresholds(evaluation.sigmoid(outputs), labels)
        model.task = dataclasses.replace(model.task, thresholds=thresholds)
    answers = evaluation.make_predictor(model).as_probabilities(outputs)
    model.task = dataclasses.replace(
        model.task,
        quantiles=evaluation.fit_quantiles(answers, labels, model.task),
        floors=evaluation.fit_floors(answers) if model.task.kind == "classes" else None,
    )
    return outputs


def choose_thresholds(
    model: keras.Model, split: "data.Split", options: "evaluation.TileOptions"
) -> None:
    """Gives the task of a model of boxes the thresholds with the best F1 on a development split."""
    predictor = evaluation.make_predictor(model)
    pairs = evaluation.predict_split(predictor, split, options)
    thresholds = evaluation.best_box_thresholds(*pairs, predictor.num_classes)
    model.task = dataclasses.replace(model.task, thresholds=thresholds)


def first_training_images(
    config: Config, count: int = 36
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...], Task]:
    """Makes the first augmented images of a run with its own pipeline, as pixels.

    Args:
        config: The run. Patches that its pretext task masks are shown; for DINO, the first view.
        count: The number of images, even; fewer if there are fewer training images.

    Returns:
        The images, `(N, H, W, C)` uint8, or float32 for more than 8 bits; the targets, `(N, K)`,
        such as one-hot or mixed classes; the names of the outputs; and the task.

    Raises:
        ValueError: If the configuration does not suit the data set, or if an image cannot be read.
        OSError: If the data set or the weights cannot be read.

    Example:
        ```python
        config = vit_keras.config.read_config("digits")
        images, *described = experiments.first_training_images(config, count=16)
        figures.picture_sheet(images, data.captions_of(*described), "sheet.png")
        ```
    """
    config = complete_model(config)
    dataset = data.load(config.dataset, config.model.channels, config.data, config.task)
    config = dataclasses.replace(config, data=data.complete_levels(config.data, dataset))
    train, *_ = data.train_dev_test(dataset, config.data)
    task = data.learned_task(dataset, train, config)
    model = initial_model(config, dataset.class_names, task)
    count = min(count, max(2, len(train) // 2 * 2))  # whole pairs, since pairs are mixed
    one_batch = dataclasses.replace(
        config,
        batch=count,
        epochs=None,
        total_steps=1,
        steps_per_execution=1,
        optimizer=dataclasses.replace(config.optimizer, accumulation_steps=1),
        pretext=PretextConfig(),
    )
    images_of = (model.input_shape[1:3], model.preprocessing)
    feed = lambda run: data.Feed(dataset, run, *images_of, task=task)
    with dataset.unreadable.reading():
        ((images, labels),) = feed(one_batch).training(0)
        if config.pretext.is_dino:  # the views of the same images
            one_batch = dataclasses.replace(one_batch, pretext=config.pretext)
            (((views, _), _),) = feed(one_batch).training(0)
            images = views[:, 0]
    pixels = data.pixels_of(images, model.preprocessing)
    return pixels, labels, dataset.class_names, task
