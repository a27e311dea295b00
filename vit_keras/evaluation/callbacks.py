"""The few-shot evaluation of a model while it trains."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras

from vit_keras import data
from vit_keras.evaluation.fewshot import (
    SEEDS,
    Draw,
    accuracies,
    draw,
    extract,
    feature_model,
)

SHOTS = (1, 5, 10)


class FewShotCallback(keras.callbacks.Callback):
    """Every `every` epochs the few-shot accuracies, as `fewshot_1` … in the epoch's logs.

    They are of the features of `encoder`, by default of the model that trains.
    `train`, the images `drawn`, and `test` are batches of images and labels that can be gone
    through again and again. The callback stands before those that record the logs. It works in
    the time of the validation, where there is one, so that it does not count as training.
    """

    def __init__(
        self,
        train: Iterable,
        drawn: Draw,
        test: Iterable,
        num_classes: int,
        every: int = 1,
        encoder: keras.Model | None = None,
    ):
        super().__init__()
        self.train, self.drawn, self.test = train, drawn, test
        self.num_classes, self.every, self.encoder = num_classes, every, encoder
        self.features, self.found, self.epoch = None, None, 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch, self.found = epoch + 1, None

    def on_test_end(self, logs=None):
        self._evaluate()

    def on_epoch_end(self, epoch, logs=None):
        self._evaluate()
        logs.update(self.found)

    def _evaluate(self):
        if self.found is not None:
            return
        self.found = {}
        if self.epoch % self.every == 0:
            if self.features is None:
                self.features = feature_model(self.encoder or self.model)
            rows = self._rows(self.features)
            self.found = {f"fewshot_{row['shots']}": row["mean"] for row in rows}

    def gain(self, before: keras.Model, after: keras.Model) -> dict[str, list[dict[str, Any]]]:
        """The rows of `few_shot` of two models on the images of the run: what training brought."""
        rows = [self._rows(feature_model(model)) for model in (before, after)]
        return {"fewshot_before": rows[0], "fewshot": rows[1]}

    def _rows(self, features):
        train, test = (extract(features, batches) for batches in (self.train, self.test))
        return accuracies(*train, self.drawn, test, self.num_classes)


def few_shot_callback(
    split: "data.Split",
    test: Iterable,
    num_classes: int,
    every: int,
    shots: Sequence[int] = SHOTS,
    seeds: int = SEEDS,
    encoder: keras.Model | None = None,
    **how,
) -> FewShotCallback:
    """A `FewShotCallback` on a training split; `how` are arguments of `data.eval_batches`."""
    drawn = draw(split.labels, num_classes, shots, seeds)
    train = data.eval_batches(split.part(drawn.images), **how)
    return FewShotCallback(train, drawn, test, num_classes, every, encoder)
