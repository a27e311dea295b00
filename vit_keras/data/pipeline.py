"""From a split to batches: every batch is a pure function of the seed and the step."""

import numpy as np
import tensorflow as tf

from vit_keras.config import DataConfig
from vit_keras.data import mixing
from vit_keras.data.augment import Augmentation
from vit_keras.data.datasets import load
from vit_keras.data.masking import Masking
from vit_keras.data.parallel import parallel_map, prefetch_untuned
from vit_keras.data.splits import Split
from vit_keras.data.tf_preprocess import resize
from vit_keras.models import Preprocessing

HELD_OUT = -1  # in the place of a run's seed, for what is drawn for held-out images


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
    num_classes: int,
    shard: tuple[int, int] = (0, 1),
    masking: Masking | None = None,
) -> tf.data.Dataset:
    """Batches of steps `start_step` up to `total_steps`: images `(B, H, W, C)`, labels `(B, K)`.

    Step m holds the examples m * batch up to (m + 1) * batch of an endless row in which each epoch
    goes through the split in an order of its own. Order and changes of an example follow from
    (seed, its number) alone, so a resumed run sees what it would have seen, and parts of a batch,
    or `shard` (r, n) of it for process r of n, are rows of the whole. Labels are one-hot float32,
    or mixed; `masking` gives its inputs, targets and weights in their stead. Raises ValueError
    where n does not divide `batch`, or mixing would split a pair.
    """
    first, count = _rows(batch, shard)
    mixing.check_pairs(augment_config, batch, shard[1])
    change = Augmentation(augment_config, image_size, preprocessing)
    size = len(split)

    def example(i, replace):
        i = i // count * batch + first + i % count  # its number in the whole row
        index = _shuffled(i, size, seed)
        key, pair = (tf.stack([tf.constant(seed, tf.int64), n]) for n in (i, -1 - i // 2))
        read = lambda window: split.example(index, window, replace)
        image, label, drawn = change.example(read, key, pair)
        drawn |= masking.draw(key) if masking else {}
        return image, tf.one_hot(label, num_classes), *([drawn] if drawn else [])

    def whole(images, labels, drawn):
        images, labels = change.batch(images, labels, drawn)
        return masking.batch(images, drawn) if masking else (images, labels)

    numbers = tf.data.Dataset.range(start_step * count, total_steps * count)
    batches = _batched(numbers, example, count, split)
    if len(batches.element_spec) == 3:
        batches = parallel_map(batches, whole)
    batches = batches.apply(tf.data.experimental.assert_cardinality(total_steps - start_step))
    return prefetch_untuned(batches)


def eval_batches(
    split: Split,
    *,
    image_size: tuple[int, int],
    preprocessing: Preprocessing,
    batch: int,
    shard: tuple[int, int] = (0, 1),
    num_classes: int | None = None,
    pad: bool = False,
    masking: Masking | None = None,
) -> tf.data.Dataset:
    """All images of a split once, in order: images `(B, H, W, C)`, labels `(B,)` int32.

    With `num_classes` labels are one-hot `(B, K)` float32. With `pad` there come weights `(B,)` as
    well, and every batch is whole: the last image is repeated with weight 0, and the others weigh
    alike, so that all weights are 1 on average, as Keras divides a weighted loss by the images of
    a batch. `shard` (r, n) gives process r its rows of each batch. `masking` gives its inputs,
    targets and weights in the stead of images and labels, the same each time. Raises ValueError
    as `train_batches` does, or for `pad` without `num_classes`.
    """
    first, count = _rows(batch, shard)
    if pad and num_classes is None:
        raise ValueError("`pad` gives one-hot labels, and needs `num_classes`. Received: None")
    size = len(split)
    total = -(-size // batch) * batch
    weight = total / size
    rows = np.arange(total).reshape(-1, batch)[:, first : first + count]
    rows = rows.reshape(-1) if pad else rows[rows < size]

    def example(row, replace):
        image, label = split.example(tf.minimum(row, size - 1), None, replace)
        image = preprocessing.normalise(resize(image, image_size, preprocessing))
        image = tf.ensure_shape(image, (*image_size, image.shape[-1]))
        label = label if num_classes is None else tf.one_hot(label, num_classes)
        found = (tf.cast(row < size, tf.float32) * weight,) if pad else ()
        drawn = masking and masking.draw(tf.stack([HELD_OUT, row]))
        return image, label, *found, *([drawn] if masking else [])

    examples = tf.data.Dataset.from_tensor_slices(rows)
    batches = _batched(examples, example, count, split)
    if masking:
        batches = parallel_map(batches, lambda images, _, *more: masking.batch(images, *more[::-1]))
    steps = -(-len(rows) // count)
    batches = batches.apply(tf.data.experimental.assert_cardinality(steps))
    return prefetch_untuned(batches)


def sample_images(
    name: str | None,
    shape: tuple[int, int, int],
    preprocessing: Preprocessing,
    count: int = 64,
    config: DataConfig | None = None,
) -> np.ndarray:
    """The first `count` held-out images of a data set, or noise without one: uint8 of `shape`."""
    if name is None:
        return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype="uint8")
    config = config or DataConfig()
    split = load(name, shape[-1], config).split(config.test_split)
    images = [
        resize(split.read(tf.constant(i)), shape[:2], preprocessing)
        for i in range(min(count, len(split)))
    ]
    return np.clip(np.round(np.stack(images)), 0, 255).astype("uint8")


def _shuffled(number, size, seed):
    """Which example of the split the endless row of epochs holds at `number`."""
    epoch, place = tf.cast(number // size, tf.int32), tf.cast(number % size, tf.int32)
    order = tf.stack([tf.constant(seed, tf.int32), epoch])
    return tf.random.experimental.index_shuffle(place, order, size - 1)


def _batched(numbers, example, count, split):
    """Batches of `example(number, replace)`, in order, computed in parallel.

    Where an unreadable picture stops the run, an error leaves out its batch, which the next one's
    numbers show: to be ready for an error at each picture costs a third of its decoding.
    """
    whole = numbers.cardinality().numpy() % count == 0
    batched = lambda dataset: dataset.batch(count, drop_remainder=whole)
    if split.origin is None or not split.origin.unreadable.stop:
        return batched(parallel_map(numbers, lambda i: example(i, True)))
    quick = batched(parallel_map(numbers, lambda i: (i, example(i, False))))
    nothing = tf.data.Dataset.range(1).repeat().map(lambda _: _without_rows(quick.element_spec))
    found = quick.ignore_errors(log_warning=False).concatenate(nothing)
    steps = tf.data.Dataset.zip(batched(numbers), found)

    def check(wanted, found):
        if not np.array_equal(wanted, found):
            for number in wanted:
                example(tf.constant(number), True)  # says what is wrong with it
            raise ValueError(f"Images {wanted} of the run could be read only the second time")
        return np.int32(0)

    def checked(wanted, found):
        numbers, batch = found
        with tf.control_dependencies([tf.numpy_function(check, [wanted, numbers], tf.int32)]):
            static = lambda x: tf.ensure_shape(tf.identity(x), (wanted.shape[0], *x.shape[1:]))
            return tf.nest.map_structure(static, batch)

    return parallel_map(steps, checked)


def _without_rows(specs):
    return tf.nest.map_structure(lambda spec: tf.zeros((0, *spec.shape[1:]), spec.dtype), specs)


def _rows(batch, shard):
    """The first row of a process in each batch, and how many it has."""
    number, processes = shard
    if batch % processes:
        raise ValueError(
            f"The number of processes must divide `batch`. Received: batch={batch} over "
            f"{processes} processes"
        )
    count = batch // processes
    return number * count, count
