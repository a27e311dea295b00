"""What a trained model's outputs still need: units, a temperature, and thresholds."""

import dataclasses

import keras
import numpy as np

from vit_keras import evaluation
from vit_keras.models import scale_head
from vit_keras.tasks import Task


def restore_numbers(model: keras.Model) -> None:
    """Lets a model of standardized numbers return the numbers themselves, by its head's weights.

    What its task says for training alone is dropped, of any model.
    """
    if model.task.mean is not None:
        scale_head(model, model.task.std, model.task.mean)
    model.task = Task(model.task.kind)


def fit_to_development(
    model: keras.Model, outputs: np.ndarray, labels: np.ndarray, calibrate: bool
) -> np.ndarray:
    """Fits what a development split decides, which training images and test images must not.

    With `calibrate`, the head's weights are divided by a temperature. Each label gets the threshold
    that gives the highest F1.

    Args:
        model: The trained model, which is changed in place.
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
    return outputs
