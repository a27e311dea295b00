"""The order of training images: a pure function of the seed and an image's number in the run."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf


def shuffled(size: int, seed: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a map from a number of the endless sequence of epochs to an index of a split.

    Args:
        size: The number of images of the split.
        seed: The run's seed.
    """

    def index(number):
        epoch, place = tf.cast(number // size, tf.int32), tf.cast(number % size, tf.int32)
        order = tf.stack([tf.constant(seed, tf.int32), epoch])
        return tf.random.experimental.index_shuffle(place, order, size - 1)

    return index


def balanced(strata: Sequence[int], seed: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a map as `shuffled` does, by which all strata are drawn equally often.

    Of K consecutive numbers, each stratum gets one, in an order of its own. Each stratum goes
    through its images in epochs of its own.

    Args:
        strata: A value for each image, such as its class.
        seed: The run's seed.
    """
    _, numbers, sizes = np.unique(np.asarray(strata), return_inverse=True, return_counts=True)
    members = tf.constant(np.argsort(numbers, kind="stable").astype("int32"))
    starts = tf.constant((np.cumsum(sizes) - sizes).astype("int32"))
    sizes, count = tf.constant(sizes.astype("int32")), len(sizes)

    def index(number):
        turn, place = tf.cast(number // count, tf.int32), tf.cast(number % count, tf.int32)
        stratum = _permuted(place, [seed, 0, turn], count)
        size = tf.gather(sizes, stratum)
        member = _permuted(turn % size, [seed, stratum + 1, turn // size], size)
        return tf.gather(members, tf.gather(starts, stratum) + member)

    return index


def _permuted(index, seed, size):
    """`index_shuffle`, which takes seeds of two numbers alone, for three."""
    return tf.raw_ops.RandomIndexShuffle(
        index=index, seed=tf.stack(seed), max_index=size - 1, rounds=4
    )
