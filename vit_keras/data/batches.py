"""Batches by number, prepared ahead in threads, and their random generators."""

import functools
import itertools
import os
import pathlib
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import keras
import numpy as np

from vit_keras.data.labels import LABEL_KINDS
from vit_keras.layers import backends
from vit_keras.support import machine
from vit_keras.support.tasks import CLASSES, Task

# The purposes of streams: the second number of a key, so that no two streams are the same.
EXAMPLE, PAIR, ORDER, STRATUM, MEMBER, HELD_OUT = range(6)


def generator(*key: int) -> np.random.Generator:
    """Returns a generator whose stream depends only on a key.

    Args:
        *key: Any number of integers from -2**63 to 2**63 - 1. Different keys have independent
            streams, even if they differ only in length or trailing zeros.

    Example:
        >>> generator(7, EXAMPLE, 3).integers(100) == generator(7, EXAMPLE, 3).integers(100)
        True
    """
    words = np.array([len(key), *(int(number) % 2**64 for number in key)], "<u8").view("<u4")
    return np.random.default_rng(words)


def shuffled(size: int, seed: int) -> Callable[[int], int]:
    """Returns a map from a position in the endless sequence of epochs to an index of a split.

    Args:
        size: The number of images of the split.
        seed: The run's seed.
    """
    order = functools.lru_cache(2)(_order)
    return lambda number: int(order(size, seed, ORDER, number // size)[number % size])


def balanced(strata: Sequence[int], seed: int) -> Callable[[int], int]:
    """Returns a map like the one from `shuffled` that draws all strata equally often.

    Of K consecutive numbers, each of the K strata gets one, in a new order each time. Each stratum
    goes through its images in its own epochs.

    Args:
        strata: A value for each image, such as its class.
        seed: The run's seed.
    """
    _, numbers, sizes = np.unique(np.asarray(strata), return_inverse=True, return_counts=True)
    images = np.argsort(numbers, kind="stable").astype(np.min_scalar_type(len(numbers)))
    members = np.split(images, np.cumsum(sizes)[:-1])
    turns, epochs = (functools.lru_cache(size)(_order) for size in (2, 2 * len(members)))

    def index(number):
        turn, place = divmod(number, len(members))
        stratum = int(turns(len(members), seed, STRATUM, turn)[place])
        epoch, place = divmod(turn, len(members[stratum]))
        order = epochs(len(members[stratum]), seed, MEMBER, stratum, epoch)
        return int(members[stratum][order[place]])

    return index


def _order(size, *key):
    """Returns the order of an epoch; the key ends with its number."""
    order = np.arange(size, dtype=np.min_scalar_type(size))
    generator(*key).shuffle(order)
    return order


AHEAD = 2  # batches prepared while one is used
CHUNKS = 4  # chunks of a batch that each thread takes, one after the other

Map = Callable[[Callable, Iterable], Iterable]  # such as `map`
Make = Callable[[int, Map], Any]  # computes a batch from its number


class Batches(keras.utils.PyDataset):
    """Batches, each a pure function of its number.

    The examples of a batch are computed in threads, and two batches are prepared while one is
    used. Keras' own workers would compute whole batches side by side: the first one would come
    later, and each epoch would begin with the first batch again. Call `fit` with `shuffle=False` to
    keep the order of the batches.

    Args:
        make: Computes a batch from its number and a function like `map`, which computes the
            examples of the batch.
        count: The number of batches.
        threads: The number of threads; None for one per core, 0 to compute each batch when it is
            used.
        whole: Whether all batches have the same size; if not, the last one may be smaller.

    Example:
        >>> batches = Batches(lambda number, each: (np.array([number, number + 1]),), 3)
        >>> [batch.tolist() for (batch,) in batches]
        [[0, 1], [1, 2], [2, 3]]
    """

    def __init__(self, make: Make, count: int, threads: int | None = None, whole: bool = True):
        super().__init__()
        self._make, self._count, self.whole = make, count, whole
        self._threads = machine.cores() if threads is None else threads
        self._lock = threading.Lock()
        self._begun: dict[int, Future] = {}
        # The threads start with their first task, and end when the pools are garbage-collected.
        self._pool, self._each = ThreadPoolExecutor(2, "batches"), _in_chunks(self._threads)

    def __len__(self):
        return self._count

    def __getitem__(self, number):
        if not 0 <= number < self._count:
            raise IndexError(f"A batch's number must lie in [0, {self._count}). Received: {number}")
        if not self._threads:
            return self._make(number, map)
        with self._lock:
            in_order = number == 0 or number - 1 in self._begun
            ahead = range(number, min(number + 1 + AHEAD * in_order, self._count))
            # Keras asks for the first two batches twice on TensorFlow.
            kept = {n: b for n, b in self._begun.items() if n in ahead or max(n, number) < 2}
            begin = lambda n: self._pool.submit(self._make, n, self._each)
            self._begun = kept | {n: begin(n) for n in ahead if n not in kept}
            batch = self._begun[number]
        try:
            return batch.result()
        except Exception:
            with self._lock:
                self._begun.pop(number, None)  # the next attempt may succeed
            raise

    def as_dataset(self):
        """Returns what to pass to `fit`: on TensorFlow a `tf.data.Dataset`, otherwise batches.

        On TensorFlow, Keras would use tf.data's autotuner, which may wait up to a minute at the
        end. On torch, Keras would copy each batch twice, while a GPU waits; here the thread that
        makes a batch copies it to the device.
        """
        if placement := backends.lookup("placement"):
            make, place = self._make, placement()
            others = self._count, self._threads, self.whole
            return Batches(lambda number, each: place(make(number, each)), *others)
        if keras.backend.backend() != "tensorflow":
            return self
        import tensorflow as tf

        spec = lambda x: tf.TensorSpec((len(x) if self.whole else None, *x.shape[1:]), x.dtype)
        signature = keras.tree.map_structure(spec, self[0])
        me: Any = weakref.ref(self)  # TensorFlow keeps the generator's function forever
        dataset = tf.data.Dataset.from_generator(lambda: iter(me()), output_signature=signature)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(self._count))
        options = tf.data.Options()
        options.autotune.enabled = False
        dataset = dataset.prefetch(1).with_options(options)
        dataset.batches = self  # kept alive by its iterators
        return dataset


def _in_chunks(threads: int) -> Map:
    """Returns a `map` that runs in threads, each of which takes several items at a time."""
    pool = ThreadPoolExecutor(max(1, threads), "examples")

    def each(function, items):
        items = list(items)
        size = max(1, len(items) // (CHUNKS * threads))
        chunks = [items[i : i + size] for i in range(0, len(items), size)]
        of_chunks = pool.map(lambda chunk: [function(item) for item in chunk], chunks)
        return itertools.chain.from_iterable(of_chunks)

    return each


FEATURES, LABELS = "features.npy", "labels.npy"


def write_features(folder: str | os.PathLike, run: Callable, batches: Batches, count: int) -> None:
    """Computes the features of all pictures of a split, and writes them one batch at a time.

    Args:
        folder: An empty folder.
        run: Maps images `(B, H, W, C)` to features `(B, ...)`.
        batches: Batches of images and labels, all of the same size except the last.
        count: N, the number of images.

    Raises:
        FloatingPointError: A feature is not finite.
    """
    file, row, size, labels = None, 0, None, []
    for images, classes in batches:
        size = size or len(images)
        whole = images[np.minimum(np.arange(size), len(images) - 1)]  # one shape to compile
        outputs = np.asarray(run(whole), "float32")[: len(images)]
        if not np.isfinite(outputs).all():
            raise FloatingPointError(
                f"Features must be finite. Received: NaN or infinity in pictures {row} to "
                f"{row + len(images) - 1}. Check the weights, or use model.dtype float32"
            )
        if file is None:
            place, shape = pathlib.Path(folder) / FEATURES, (count, *outputs.shape[1:])
            file = np.lib.format.open_memmap(place, "w+", "float32", shape)
        file[row : row + len(images)] = outputs
        row += len(images)
        labels.append(classes)
    np.save(pathlib.Path(folder) / LABELS, np.concatenate(labels))


def feature_batches(
    folder: str | os.PathLike,
    *,
    batch: int,
    num_classes: int,
    task: Task = CLASSES,
    seed: int = 0,
    start: int = 0,
    stop: int | None = None,
) -> Batches:
    """Makes batches of the features that `write_features` wrote, read row by row from the folder.

    Args:
        folder: The folder.
        batch: The number of images per step.
        num_classes: K, as for `train_batches`.
        task: As for `train_batches`.
        seed: The run's seed, for the sequence of `train_batches`.
        start: The first step of the sequence.
        stop: The step after the last one; None for all features, once and in order, as
            `eval_batches` gives them.

    Returns:
        Features `(B, ...)` and targets `(B, K)` float32.

    Example:
        ```python
        batches = data.eval_batches(split, **feed.eval_options)
        data.write_features("features", backbone.predict_on_batch, batches, len(split))
        batches = data.feature_batches("features", batch=64, num_classes=10, seed=0, stop=100)
        head.fit(batches, shuffle=False)
        ```
    """
    features = np.load(pathlib.Path(folder) / FEATURES, mmap_mode="r")
    labels = np.load(pathlib.Path(folder) / LABELS)
    target, size = LABEL_KINDS[task.kind].target, len(labels)
    end, index_of = (size, int) if stop is None else (stop * batch, shuffled(size, seed))

    def make(number, each):
        first = (start + number) * batch
        rows = [index_of(row) for row in range(first, min(first + batch, end))]
        targets = [target(label, task, num_classes) for label in labels[rows]]
        return features[rows], np.stack(targets)

    return Batches(make, -(-end // batch) - start, whole=end % batch == 0)
