"""The batches that a run trains and is judged on."""

from typing import Any

import tensorflow as tf

from vit_keras.data.dataset import Dataset
from vit_keras.data.held_out import train_and_test
from vit_keras.data.masking import Masking
from vit_keras.data.pipeline import eval_batches, train_batches
from vit_keras.models import Preprocessing


class Feed:
    """Makes the batches of a run from its data set and its `Config`.

    Args:
        dataset: The data set.
        config: The run's `Config`.
        image_size: The model's height and width in pixels.
        preprocessing: The model's preprocessing.
        shard: (r, n) for process r of n, which gets its rows of each batch.

    Attributes:
        train: The training split.
        test: The split that the run is judged on.
        num_classes: The number of classes.
        eval_options: The arguments of `eval_batches` that the model and the run determine.

    Example:
        ```python
        feed = data.Feed(dataset, config, model.input_shape[1:3], model.preprocessing)
        model.fit(feed.training(start=0), validation_data=feed.validation(pad=False))
        ```
    """

    def __init__(
        self,
        dataset: Dataset,
        config,
        image_size: tuple[int, int],
        preprocessing: Preprocessing,
        shard: tuple[int, int] = (0, 1),
    ):
        self.config, self.shard = config, shard
        self.train, self.test = train_and_test(dataset, config.data)
        self.num_classes = len(dataset.class_names)
        self.images: dict[str, Any] = {"image_size": image_size, "preprocessing": preprocessing}
        self.eval_options = {"batch": config.batch_eval, **self.images}
        self.masking = None
        if config.pretext.is_active:
            sizes = image_size, config.model.patch
            self.masking = Masking(config.pretext, *sizes, preprocessing)

    def training(self, start: int) -> tf.data.Dataset:
        """Returns batches of training images and one-hot labels, from batch `start` of `fit` on.

        With gradient accumulation, each batch is a part of an update. With a pretext task, batches
        are ((images, source), targets, weights) as `Masking.batch` makes them.
        """
        config, parts_per_update = self.config, self.config.optimizer.accumulation_steps
        return train_batches(
            self.train,
            batch=config.batch // parts_per_update,
            augment_config=config.augment,
            seed=config.seed,
            start_step=start,
            total_steps=config.total_steps * parts_per_update,
            num_classes=self.num_classes,
            shard=self.shard,
            masking=self.masking,
            **self.images,
        )

    def validation(self, pad: bool) -> tf.data.Dataset:
        """Returns batches of held-out images and one-hot labels for `fit`.

        With `pad`, all batches are whole and have weights, as in `eval_batches`. With a pretext
        task, `Masking.batch` makes the batches.
        """
        return eval_batches(
            self.test,
            num_classes=self.num_classes,
            shard=self.shard,
            pad=pad,
            masking=self.masking,
            **self.eval_options,
        )

    def held_out(self) -> tf.data.Dataset:
        """Returns batches of all held-out images once, with labels `(B,)`."""
        return eval_batches(self.test, **self.eval_options)
