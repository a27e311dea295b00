"""The few-shot evaluation of a model while it trains."""

from collections.abc import Iterable, Sequence

import keras

from vit_keras.data import Split, eval_batches
from vit_keras.evaluation.fewshot import (
    SEEDS,
    Draw,
    accuracies,
    draw,
    extract,
    features_of,
)

SHOTS = (1, 5, 10)


class FewShot(keras.callbacks.Callback):
    """Every `every` epochs the few-shot accuracies, as `fewshot_1` … in the epoch's logs.

    `train`, the images `drawn`, and `test` are batches of images and labels that can be gone
    through again and again. The callback stands before those that record the logs. It works in
    the time of the validation, where there is one, so that it does not count as training.
    """

    def __init__(
        self, train: Iterable, drawn: Draw, test: Iterable, num_classes: int, every: int = 1
    ):
        super().__init__()
        self.train, self.drawn, self.test = train, drawn, test
        self.num_classes, self.every = num_classes, every
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
                self.features = features_of(self.model)
            features, labels = extract(self.features, self.train)
            test = extract(self.features, self.test)
            rows = accuracies(features, labels, self.drawn, test, self.num_classes)
            self.found = {f"fewshot_{row['shots']}": row["mean"] for row in rows}


def few_shot_callback(
    split: Split,
    test: Iterable,
    num_classes: int,
    every: int,
    shots: Sequence[int] = SHOTS,
    seeds: int = SEEDS,
    **how,
) -> FewShot:
    """A `FewShot` on a training split, unaugmented; `how` are arguments of `data.eval_batches`."""
    drawn = draw(split.labels, num_classes, shots, seeds)
    return FewShot(eval_batches(split.part(drawn.images), **how), drawn, test, num_classes, every)
