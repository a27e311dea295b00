"""Features of pictures in files, and the batches that a run makes of them."""

import os
import pathlib
from collections.abc import Callable

import numpy as np

from vit_keras.data.batches import Batches
from vit_keras.data.label_kinds import LABEL_KINDS
from vit_keras.data.order import shuffled
from vit_keras.tasks import CLASSES, Task

FILES = ("features.npy", "labels.npy")


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
        batches = stored.training(batch=64, seed=0, start=0, stop=100, num_classes=10)
        head.fit(batches, shuffle=False)
        ```
    """

    def __init__(self, folder: str | os.PathLike):
        features, labels = (pathlib.Path(folder) / name for name in FILES)
        self.features = np.load(features, mmap_mode="r")
        self.labels = np.load(labels)

    @classmethod
    def write(cls, folder: str | os.PathLike, run: Callable, batches: Batches, count: int) -> None:
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
        for images, classes in batches:
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
    ) -> Batches:
        """Makes the batches `start` to `stop` of the sequence that `train_batches` makes.

        Returns:
            Features `(B, ...)` and targets `(B, K)` float32.
        """
        index_of = shuffled(len(self.labels), seed)

        def make(step, each):
            first = (start + step) * batch
            rows = [index_of(number) for number in range(first, first + batch)]
            return self._batch(rows, num_classes, task)

        return Batches(make, stop - start)

    def held_out(self, *, batch: int, num_classes: int, task: Task = CLASSES) -> Batches:
        """Makes batches of all features once, in order, as `eval_batches` does."""
        size = len(self.labels)

        def make(number, each):
            rows = range(number * batch, min((number + 1) * batch, size))
            return self._batch(list(rows), num_classes, task)

        return Batches(make, -(-size // batch), whole=size % batch == 0)

    def _batch(self, rows, num_classes, task):
        """Reads the rows of a batch from the disk."""
        target = LABEL_KINDS[task.kind].target
        targets = [target(label, task, num_classes) for label in self.labels[rows]]
        return self.features[rows], np.stack(targets)
