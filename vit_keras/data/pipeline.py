"""From a split to batches: every batch is a pure function of the seed and the step."""

import numpy as np
import tensorflow as tf

from vit_keras.data.augment import augment, is_active
from vit_keras.data.datasets import Split, load
from vit_keras.data.preprocess import normalise, resize
from vit_keras.models import Preprocessing


def train_batches(
    split: Split,
    *,
    image_size: tuple[int, int],
    preprocessing: Preprocessing,
    batch: int,
    augment_config,
    seed: int,
    start_step: int,
    total_steps: int,
) -> tf.data.Dataset:
    """Batches of steps `start_step` up to `total_steps`: images `(B, H, W, C)`, labels `(B,)`.

    Each epoch goes through the split in an order of its own; a batch may span two epochs. Since
    order and augmentation follow from (seed, step), a resumed run sees what it would have seen.
    """
    size, labels = len(split), tf.constant(split.labels)

    def example(i):
        epoch, place = tf.cast(i // size, tf.int32), tf.cast(i % size, tf.int32)
        key = tf.stack([tf.constant(seed, tf.int32), epoch])
        index = tf.random.experimental.index_shuffle(place, key, size - 1)
        return resize(split.read(index), image_size, preprocessing), tf.gather(labels, index)

    def whole_batch(step, batch_of):
        images, classes = batch_of
        if is_active(augment_config):
            key = tf.stack([tf.constant(seed, tf.int64), step])
            images = augment(
                tf.ensure_shape(images, (batch, *image_size, None)), key, augment_config
            )
        return normalise(images, preprocessing), classes

    examples = tf.data.Dataset.range(start_step * batch, total_steps * batch)
    examples = examples.map(example, num_parallel_calls=tf.data.AUTOTUNE)
    steps = tf.data.Dataset.range(start_step, total_steps)
    batches = tf.data.Dataset.zip(steps, examples.batch(batch, drop_remainder=True))
    batches = batches.map(whole_batch, num_parallel_calls=tf.data.AUTOTUNE)
    return batches.prefetch(tf.data.AUTOTUNE)


def eval_batches(
    split: Split, *, image_size: tuple[int, int], preprocessing: Preprocessing, batch: int
) -> tf.data.Dataset:
    """All images of a split once, in order: images `(B, H, W, C)`, labels `(B,)`."""
    labels = tf.constant(split.labels)

    def example(index):
        image = resize(split.read(index), image_size, preprocessing)
        return normalise(image, preprocessing), tf.gather(labels, index)

    indices = tf.data.Dataset.range(len(split))
    batches = indices.map(example, num_parallel_calls=tf.data.AUTOTUNE).batch(batch)
    return batches.prefetch(tf.data.AUTOTUNE)


def one_hot(batches: tf.data.Dataset, num_classes: int) -> tf.data.Dataset:
    """The same batches with labels `(B,)` as `(B, num_classes)` float32."""
    return batches.map(lambda images, labels: (images, tf.one_hot(labels, num_classes)))


def sample_images(
    name: str | None, shape: tuple[int, int, int], preprocessing: Preprocessing, count: int = 64
) -> np.ndarray:
    """The first `count` test images of a data set, or noise without one: uint8 of `shape`."""
    if name is None:
        return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype="uint8")
    split = load(name, shape[-1]).split("test")
    images = [
        resize(split.read(tf.constant(i)), shape[:2], preprocessing)
        for i in range(min(count, len(split)))
    ]
    return np.clip(np.round(np.stack(images)), 0, 255).astype("uint8")
