"""The batches that a run trains and is judged on."""

from typing import Any

import numpy as np

from vit_keras.data.batches import Batches
from vit_keras.data.dataset import Dataset
from vit_keras.data.held_out import train_dev_test
from vit_keras.data.label_kinds import LABEL_KINDS
from vit_keras.data.masking import Masking
from vit_keras.data.pipeline import eval_batches, train_batches
from vit_keras.data.splits import Split
from vit_keras.data.views import Views
from vit_keras.models import Preprocessing
from vit_keras.tasks import CLASSES, Task


class Feed:
    """Makes the batches of a run from its data set and its `Config`.

    Args:
        dataset: The data set.
        config: The run's `Config`.
        image_size: The model's height and width in pixels.
        preprocessing: The model's preprocessing.
        shard: (r, n) for process r of n, which gets its rows of each batch.
        task: What the model learns.

    Attributes:
        train: The training split.
        dev: The split that the run is watched on, and that chooses what is not trained.
        test: The split that the run is judged on; mostly the same.
        num_classes: The number of classes.
        eval_options: The arguments of `eval_batches` that the model and the run determine.

    Example:
        ```python
        feed = data.Feed(dataset, config, model.input_shape[1:3], model.preprocessing)
        training, validation = feed.training(start=0), feed.validation(pad=False)
        model.fit(training, validation_data=validation, shuffle=False)
        ```
    """

    def __init__(
        self,
        dataset: Dataset,
        config,
        image_size: tuple[int, int],
        preprocessing: Preprocessing,
        shard: tuple[int, int] = (0, 1),
        task: Task = CLASSES,
    ):
        self.config, self.shard, self.threads = config, shard, config.data.workers
        self.train, self.dev, self.test = train_dev_test(dataset, config.data)
        self.num_classes = len(dataset.class_names)
        self.targets: dict[str, Any] = {"num_classes": max(self.num_classes, 1), "task": task}
        self.images: dict[str, Any] = {"image_size": image_size, "preprocessing": preprocessing}
        self.eval_options = {"batch": config.batch_eval, "threads": self.threads, **self.images}
        self.masking: Masking | Views | None = None
        if config.pretext.is_dino:
            dino, flip = config.pretext.dino, config.augment.flip
            self.masking = Views(dino, image_size, preprocessing, flip)
        elif config.pretext.is_active:
            sizes = image_size, config.model.patch
            self.masking = Masking(config.pretext, *sizes, preprocessing)

    def training(self, start: int) -> Batches:
        """Returns batches of training images and targets, from batch `start` of `fit` on.

        With gradient accumulation, each batch is a part of an update. With a pretext task, batches
        are ((images, source), targets, weights) as `Masking.batch` makes them, or the views of
        `Views.batch`.
        """
        config, parts_per_update = self.config, self.config.optimizer.accumulation_steps
        return train_batches(
            self.train,
            batch=config.batch // parts_per_update,
            augment_config=config.augment,
            seed=config.seed,
            start_step=start,
            total_steps=config.total_steps * parts_per_update,
            shard=self.shard,
            masking=self.masking,
            is_balanced=config.balance == "sampling",
            threads=self.threads,
            **self.targets,
            **self.images,
        )

    def validation(self, pad: bool) -> Batches:
        """Returns batches of development images and targets for `fit`.

        With `pad`, all batches are whole and have weights, as in `eval_batches`. With a pretext
        task, `Masking.batch` or `Views.batch` makes the batches.
        """
        return eval_batches(
            self.dev,
            shard=self.shard,
            pad=pad,
            masking=self.masking,
            **self.targets,
            **self.eval_options,
        )

    def held_out(self, split: Split | None = None) -> Batches:
        """Returns batches of all images of `test`, or of `split`, with labels as in `Split`."""
        return eval_batches(self.test if split is None else split, **self.eval_options)


def learned_task(dataset: Dataset, train: Split, config) -> Task:
    """Returns the task of a model that learns from a split of a data set.

    Numbers are standardized by the mean and the deviation of those that are known.

    Args:
        dataset: The data set.
        train: The training images.
        config: The run's `Config`, whose loss may need the shares of the classes.

    Raises:
        ValueError: If the loss needs shares, and a class has no training images, or a label has no
            image with or without it.

    Example:
        >>> dataset = data.load("digits", channels=1)
        >>> learned_task(dataset, dataset.split("train"), Config()).kind
        'classes'
    """
    if dataset.kind != "numbers":
        needs_shares = config.balance == "weights" or config.loss == "logit_adjusted"
        return Task(dataset.kind, shares=_shares(dataset, train) if needs_shares else None)
    mean, std = _standardization(train.labels)
    return Task("numbers", mean=mean, std=std)


def _shares(dataset, train):
    """The share of each class, or of the pictures that have each label."""
    counts = LABEL_KINDS[dataset.kind].counts(train.labels, dataset.class_names)
    known = len(train) if dataset.kind == "classes" else (~np.isnan(train.labels)).sum(axis=0)
    shares = np.array([*counts.values()]) / known
    if wrong := [name for name, share in zip(counts, shares) if not 0 < share < 1]:
        raise ValueError(
            "Losses that balance need training images with and without each class or label. "
            f"Received: none, or no others, for {wrong}. Set balance to none, or sampling"
        )
    return tuple(shares.tolist())


def _standardization(labels: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """K means and deviations; a number that is the same everywhere has the deviation 1."""
    labels = labels.astype("float64")
    mean, std = np.nanmean(labels, axis=0), np.nanstd(labels, axis=0)
    return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())
