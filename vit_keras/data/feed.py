"""The batches of a run, as its model wants them."""

import tensorflow as tf

from vit_keras.data.held_out import train_and_test
from vit_keras.data.masking import Masking
from vit_keras.data.pipeline import eval_batches, train_batches
from vit_keras.data.splits import Dataset
from vit_keras.models import Preprocessing


class Feed:
    """Training and held-out batches of a `Dataset` by a run's `Config`.

    `shard` (r, n) gives process r of n its rows of each batch. Attributes: `train`, `test`, the
    splits; `eval_options`, the arguments of `eval_batches` that the model and the run decide.
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
        self.images = {"image_size": image_size, "preprocessing": preprocessing}
        self.eval_options = {"batch": config.batch_eval, **self.images}
        self.masking = None
        if config.pretext.is_active:
            sizes = image_size, config.model.patch
            self.masking = Masking(config.pretext, *sizes, preprocessing)

    def training(self, start: int) -> tf.data.Dataset:
        """Images and one-hot labels from a batch of `fit` on, a part of an update each.

        With a pretext, ((images, source), targets, weights) of `Masking.batch`.
        """
        config, parts = self.config, self.config.optimizer.accumulation_steps
        return train_batches(
            self.train,
            batch=config.batch // parts,
            augment_config=config.augment,
            seed=config.seed,
            start_step=start,
            total_steps=config.total_steps * parts,
            num_classes=self.num_classes,
            shard=self.shard,
            masking=self.masking,
            **self.images,
        )

    def validation(self, pad: bool) -> tf.data.Dataset:
        """Held-out images and one-hot labels for `fit`; with `pad`, whole batches and weights.

        With a pretext, what `training` gives.
        """
        how = {"num_classes": self.num_classes, "shard": self.shard, "pad": pad}
        how["masking"] = self.masking
        return eval_batches(self.test, **how, **self.eval_options)

    def held_out(self) -> tf.data.Dataset:
        """All held-out images once, with labels `(B,)`."""
        return eval_batches(self.test, **self.eval_options)
