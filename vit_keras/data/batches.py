"""Batches by number, read ahead in threads: what `fit`, `evaluate`, and `predict` take."""

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import keras

from vit_keras import machine

AHEAD = 2  # batches that are prepared while one is used
CHUNKS = 4  # parts of a batch that a thread takes, one after the other

Map = Callable[[Callable, Iterable], Iterable]  # such as `map`


class Batches(keras.utils.PyDataset):
    """Batches of which each is a pure function of its number.

    The examples of a batch are computed in threads, and two batches are prepared while one is
    used. Keras' own workers would compute whole batches side by side, so the first one would come
    later, and each epoch would begin with the first batch again. Give `fit` `shuffle=False`, which
    keeps the order of the batches.

    Args:
        make: Computes a batch from its number and a function like `map`, which computes the
            examples of the batch.
        count: The number of batches.
        threads: The number of threads; None for one for each core, and 0 for none, which computes
            each batch at its use.
        whole: Whether all batches have the same size; if not, the last one may be smaller.

    Example:
        >>> batches = Batches(lambda number, each: (np.array([number, number + 1]),), 3)
        >>> [batch.tolist() for (batch,) in batches]
        [[0, 1], [1, 2], [2, 3]]
    """

    def __init__(
        self,
        make: Callable[[int, Map], Any],
        count: int,
        threads: int | None = None,
        whole: bool = True,
    ):
        super().__init__()
        self._make, self._count, self._whole = make, count, whole
        self._threads = machine.cores() if threads is None else threads
        self._lock = threading.Lock()
        self._begun: dict[int, Future] = {}
        self._pools: tuple[ThreadPoolExecutor, ...] = ()

    def __len__(self):
        return self._count

    def __getitem__(self, number):
        if not 0 <= number < self._count:
            raise IndexError(f"There are {self._count} batches. Received: number {number}")
        if not self._threads:
            return self._make(number, map)
        with self._lock:
            if not self._pools:  # whose threads end when they are collected
                sizes = {"batches": 2, "examples": self._threads}
                self._pools = tuple(ThreadPoolExecutor(size, name) for name, size in sizes.items())
            whole, examples = self._pools
            in_order = number == 0 or number - 1 in self._begun
            ahead = range(number, min(number + 1 + AHEAD * in_order, self._count))
            # Keras asks for the first two batches twice on TensorFlow.
            kept = {
                n: batch for n, batch in self._begun.items() if n in ahead or max(n, number) < 2
            }
            for n in ahead:
                kept[n] = kept.get(n) or whole.submit(
                    self._make, n, _in_chunks(examples, self._threads)
                )
            self._begun = kept
            batch = kept[number]
        try:
            return batch.result()
        except Exception:
            with self._lock:
                self._begun.pop(number, None)  # the next attempt may succeed
            raise

    def as_dataset(self):
        """Returns what `fit` should get: on TensorFlow a `tf.data.Dataset`, elsewhere this object.

        Keras would make a dataset with tf.data's tuner, which may wait up to a minute at the end.
        """
        if keras.backend.backend() != "tensorflow":
            return self
        import tensorflow as tf

        spec = lambda x: tf.TensorSpec((len(x) if self._whole else None, *x.shape[1:]), x.dtype)
        signature = keras.tree.map_structure(spec, self[0])
        me: Any = weakref.ref(self)  # TensorFlow keeps the generator's function forever
        dataset = tf.data.Dataset.from_generator(lambda: iter(me()), output_signature=signature)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(self._count))
        options = tf.data.Options()
        options.autotune.enabled = False
        dataset = dataset.prefetch(1).with_options(options)
        dataset.batches = self  # its iterators keep it
        return dataset


def _in_chunks(pool: ThreadPoolExecutor, threads: int) -> Map:
    """Returns a `map` over the threads of a pool, each of which takes several items at a time."""

    def each(function, items):
        items = list(items)
        size = max(1, len(items) // (CHUNKS * threads))
        chunks = [items[i : i + size] for i in range(0, len(items), size)]
        of_chunks = pool.map(lambda chunk: [function(item) for item in chunk], chunks)
        return itertools.chain.from_iterable(of_chunks)

    return each
