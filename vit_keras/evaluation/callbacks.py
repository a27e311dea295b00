"""Evaluates a model by few-shot classification during training."""

from collections.abc import Iterable
from typing import Any

import keras

from vit_keras import data
from vit_keras.evaluation.probes import (
    SEEDS,
    accuracies,
    draw,
    extract,
    feature_model,
)

SHOTS = (1, 5, 10)


class FewShotCallback(keras.callbacks.Callback):
    """Adds few-shot accuracies to the logs, as `fewshot_1` and so on.

    Place the callback before those that record the logs. With validation data, the evaluation is
    part of the validation, so its time does not count as training.

    Args:
        split: The training split to draw the shots from; they are not augmented.
        test: Batches of test images and labels; repeatable.
        num_classes: The number of classes.
        every: The number of epochs between evaluations.
        encoder: The model that computes the features; by default, the model that trains.
        **options: Further arguments of `data.eval_batches`.

    Raises:
        ValueError: If a class has too few images.

    Example:
        ```python
        options = {"image_size": (32, 32), "preprocessing": model.preprocessing, "batch": 64}
        test = data.eval_batches(dataset.split("test"), **options)
        callback = evaluation.FewShotCallback(dataset.split("train"), test, 10, **options)
        model.fit(batches, epochs=20, callbacks=[callback])  # logs fewshot_1, _5 and _10
        print(evaluation.headline(callback.gain(untrained_model, model)))
        ```
    """

    def __init__(
        self,
        split: "data.Split",
        test: Iterable,
        num_classes: int,
        every: int = 1,
        encoder: keras.Model | None = None,
        **options,
    ):
        super().__init__()
        self.drawn = draw(split.labels, num_classes, SHOTS, SEEDS)
        self.train = data.eval_batches(split.part(self.drawn.images), **options)
        self.test, self.num_classes = test, num_classes
        self.every, self.encoder = every, encoder
        self.features: keras.Model | None = None
        self.accuracies: dict[str, float] | None = None
        self.epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch, self.accuracies = epoch + 1, None

    def on_test_end(self, logs=None):
        if not self.model.stop_evaluating:
            self._evaluate()

    def on_epoch_end(self, epoch, logs=None):
        self._evaluate()
        logs.update(self.accuracies)

    def _evaluate(self):
        if self.accuracies is not None:
            return
        self.accuracies = {}
        if self.epoch % self.every == 0:
            if self.features is None:
                self.features = feature_model(self.encoder or self.model)
            rows = self._rows(self.features)
            self.accuracies = {f"fewshot_{row['shots']}": row["mean"] for row in rows}

    def gain(self, before: keras.Model, after: keras.Model) -> dict[str, list[dict[str, Any]]]:
        """Evaluates two models on the images of the run, to show the gain of training.

        Returns:
            The rows of `few_shot` under "fewshot_before" and "fewshot".
        """
        rows = [self._rows(feature_model(model)) for model in (before, after)]
        return {"fewshot_before": rows[0], "fewshot": rows[1]}

    def _rows(self, features):
        train, test = (extract(features, batches) for batches in (self.train, self.test))
        return accuracies(*train, self.drawn, test, self.num_classes)
