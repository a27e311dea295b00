"""Spreads a `tf.data.Dataset` over the cores without tf.data's tuner."""

import tensorflow as tf

from vit_keras import machine

AHEAD = 2  # elements that are prepared while one is used


def parallel_map(dataset: tf.data.Dataset, function) -> tf.data.Dataset:
    """Maps in parallel and keeps the order.

    AutoGraph is left out: there is nothing for it to convert, and it takes half a minute.
    """
    function = tf.autograph.experimental.do_not_convert(function)
    return dataset.map(function, num_parallel_calls=machine.cores())


def prefetch_untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Prepares elements ahead, and switches tf.data's tuner off.

    At its end, an iterator may wait until the tuner wakes: after 10 ms, 20 ms, 40 ms, and so on up
    to a minute.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(AHEAD).with_options(options)
