"""Features of pictures in files, and the batches that a run makes of them."""

import os
import pathlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from vit_keras.data.label_kinds import LABEL_KINDS
from vit_keras.data.parallel import parallel_map, prefetch_untuned
from vit_keras.tasks import CLASSES, Task

FILES = ("features.npy", "labels.npy")
PAD = 498247692  # what TensorFlow's `index_shuffle`, which takes no vectors, puts before its seeds


class StoredFeatures:
    """The features of a split's pictures in a folder, read row by row from the disk.

    Args:
        folder: A folder that `StoredFeatures.write` made.

    Attributes:
        features: `(N, ...)` float32, mapped from the file.
        labels: The labels, in memory, as `Split.labels` has them.

    Example:
        ```python
        batches = data.eval_batches(split, **feed.eval_options)
        data.StoredFeatures.write("features", backbone.predict_on_batch, batches, len(split))
        stored = data.StoredFeatures("features")
        head.fit(stored.training(batch=64, seed=0, start=0, stop=100, num_classes=10))
        ```
    """

    def __init__(self, folder: str | os.PathLike):
        features, labels = (pathlib.Path(folder) / name for name in FILES)
        self.features = np.load(features, mmap_mode="r")
        self.labels = np.load(labels)

    @classmethod
    def write(
        cls, folder: str | os.PathLike, run: Callable, batches: tf.data.Dataset, count: int
    ) -> None:
        """Computes the features of all pictures and writes them, a batch at a time.

        Args:
            folder: An empty folder.
            run: Maps images `(B, H, W, C)` to features `(B, ...)`.
            batches: Batches of images and labels, all but the last of one size.
            count: N, the number of images.

        Raises:
            FloatingPointError: A feature is not finite.
        """
        features, labels = (pathlib.Path(folder) / name for name in FILES)
        file, row, size, all_labels = None, 0, None, []
        for images, classes in batches.as_numpy_iterator():
            size = size or len(images)
            whole = images[np.minimum(np.arange(size), len(images) - 1)]  # one shape to compile for
            outputs = np.asarray(run(whole), "float32")[: len(images)]
            if not np.isfinite(outputs).all():
                raise FloatingPointError(
                    f"Features must be finite. Received: NaN or infinity in pictures {row} to "
                    f"{row + len(images) - 1}. Check the weights, or use model.dtype float32"
                )
            if file is None:
                shape = (count, *outputs.shape[1:])
                file = np.lib.format.open_memmap(features, "w+", "float32", shape)
            file[row : row + len(images)] = outputs
            row += len(images)
            all_labels.append(classes)
        if file is not None:
            file.flush()
        np.save(labels, np.concatenate(all_labels))

    def training(
        self,
        *,
        batch: int,
        seed: int,
        start: int,
        stop: int,
        num_classes: int,
        task: Task = CLASSES,
    ) -> tf.data.Dataset:
        """Makes the batches `start` to `stop` of the sequence that `train_batches` makes.

        Returns:
            Features `(B, ...)` and targets `(B, K)` float32.
        """
        size, places = len(self.labels), tf.range(batch, dtype=tf.int64)

        def make(step):
            rows = _shuffled(step * batch + places, size, seed)
            return self._batch(tf.ensure_shape(rows, (batch,)), num_classes, task)

        return prefetch_untuned(parallel_map(tf.data.Dataset.range(start, stop), make))

    def held_out(self, *, batch: int, num_classes: int, task: Task = CLASSES) -> tf.data.Dataset:
        """Makes batches of all features once, in order, as `eval_batches` does."""
        rows = tf.data.Dataset.range(len(self.labels)).batch(batch)
        return prefetch_untuned(
            parallel_map(rows, lambda rows: self._batch(rows, num_classes, task))
        )

    def _batch(self, rows, num_classes, task):
        """Reads the rows of a batch from the disk."""
        read = lambda rows: self.features[rows]
        features = tf.numpy_function(read, [rows], tf.float32, stateful=False)
        features = tf.ensure_shape(features, (rows.shape[0], *self.features.shape[1:]))
        labels = tf.gather(self.labels, rows)
        return features, LABEL_KINDS[task.kind].target(labels, task, num_classes)


def _shuffled(numbers, size, seed):
    """Does what the pipeline does for a number of the endless sequence, for a vector of them."""
    epochs, places = (tf.cast(x, tf.int32) for x in (numbers // size, numbers % size))
    orders = tf.stack([tf.fill(tf.shape(epochs), PAD), tf.fill(tf.shape(epochs), seed), epochs], 1)
    return tf.raw_ops.RandomIndexShuffle(index=places, seed=orders, max_index=size - 1, rounds=4)
