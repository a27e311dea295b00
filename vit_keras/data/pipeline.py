"""Makes batches from a split; every batch is a pure function of the seed and the step."""

import numpy as np
import tensorflow as tf

from vit_keras.config import DataConfig
from vit_keras.data import mixing
from vit_keras.data.augment import Augmentation, resized_label
from vit_keras.data.datasets import load
from vit_keras.data.label_kinds import LABEL_KINDS
from vit_keras.data.masking import Masking
from vit_keras.data.numpy_preprocess import to_uint8
from vit_keras.data.order import balanced, shuffled
from vit_keras.data.parallel import parallel_map, prefetch_untuned
from vit_keras.data.splits import Split
from vit_keras.data.tf_preprocess import resize
from vit_keras.data.views import Views
from vit_keras.models import Preprocessing
from vit_keras.tasks import CLASSES, Task

HELD_OUT = -1  # replaces a run's seed in the keys of held-out images


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
    task: Task = CLASSES,
    shard: tuple[int, int] = (0, 1),
    masking: Masking | Views | None = None,
    is_balanced: bool = False,
) -> tf.data.Dataset:
    """Makes batches to train on.

    Step m holds the examples m * batch up to (m + 1) * batch of an endless sequence, in which each
    epoch goes through the split in an order of its own. The order and the changes of an example
    follow from the seed and the example's number alone. A resumed run therefore sees what it would
    have seen, and the shards of a batch are rows of the whole batch.

    Args:
        split: The training images.
        image_size: Height and width in pixels.
        preprocessing: The model's preprocessing.
        batch: The number of images per step, over all processes.
        augment_config: An `AugmentConfig`.
        seed: The run's seed.
        start_step: The first step.
        total_steps: The step after the last.
        num_classes: K.
        task: What the model learns, which decides the targets.
        shard: (r, n) for process r of n, which gets its rows of each batch.
        masking: Makes the inputs and targets of a pretext task instead, or its views.
        is_balanced: Whether images of all classes are drawn equally often; of pictures with several
            labels, the rarest one counts.

    Returns:
        Images `(B, H, W, C)` and targets `(B, K)` float32: one-hot or mixed classes, labels, or
        standardized numbers, with NaN for unknown ones; with `masking`, what its `batch` returns.

    Raises:
        ValueError: If n does not divide `batch`, or if mixing would split a pair.
    """
    first, count = _rows(batch, shard)
    mixing.check_pairs(augment_config, batch, shard[1])
    change = Augmentation(augment_config, image_size, preprocessing)
    kind = LABEL_KINDS[task.kind]
    if is_balanced:
        index_of = balanced(kind.strata(split.labels), seed)
    else:
        index_of = shuffled(len(split), seed)

    def example(i, replace):
        i = i // count * batch + first + i % count  # the number in the whole sequence
        index = index_of(i)
        key, pair = (tf.stack([tf.constant(seed, tf.int64), n]) for n in (i, -1 - i // 2))
        read = lambda window: split.example(index, window, replace)
        if isinstance(masking, Views):
            return (masking.draw(read(None)[0], key),)
        image, label, drawn = change.example(read, key, pair)
        drawn |= masking.draw(key) if masking else {}
        return image, kind.target(label, task, num_classes), *([drawn] if drawn else [])

    def whole(images, labels, drawn):
        images, labels = change.batch(images, labels, drawn)
        return masking.batch(images, drawn) if masking else (images, labels)

    numbers = tf.data.Dataset.range(start_step * count, total_steps * count)
    batches = _batched(numbers, example, count, split)
    if len(batches.element_spec) != 2:
        batches = parallel_map(batches, masking.batch if isinstance(masking, Views) else whole)
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
    task: Task = CLASSES,
    pad: bool = False,
    masking: Masking | Views | None = None,
) -> tf.data.Dataset:
    """Makes batches of all images of a split once, in order and without augmentation.

    Args:
        split: The images.
        image_size: Height and width in pixels.
        preprocessing: The model's preprocessing.
        batch: The number of images per batch, over all processes.
        shard: (r, n) for process r of n, which gets its rows of each batch.
        num_classes: K, for targets as `train_batches` makes them instead of labels.
        task: As for `train_batches`.
        pad: Whether to repeat the last image, with weight 0, until every batch is whole. The other
            images have equal weights, and weights are 1 on average, since Keras divides a weighted
            loss by the number of images in a batch.
        masking: Makes the inputs and targets of a pretext task, or its views, the same each time.

    Returns:
        Images `(B, H, W, C)` and labels, `(B,)` int32 or `(B, K)` float32, or targets `(B, K)`.
        With `pad`, weights `(B,)` as well. With `masking`, what its `batch` returns.

    Raises:
        ValueError: If n does not divide `batch`, or if `pad` is given without `num_classes`.
    """
    first, count = _rows(batch, shard)
    if pad and num_classes is None:
        raise ValueError(
            "`pad` gives one-hot labels, so it needs `num_classes`. Received: num_classes=None"
        )
    size, target = len(split), LABEL_KINDS[task.kind].target
    total = -(-size // batch) * batch
    weight = total / size
    rows = np.arange(total).reshape(-1, batch)[:, first : first + count]
    rows = rows.reshape(-1) if pad else rows[rows < size]

    def example(row, replace):
        image, label = split.example(tf.minimum(row, size - 1), None, replace)
        weights = [tf.cast(row < size, tf.float32) * weight] if pad else []
        if isinstance(masking, Views):
            return masking.draw(image, tf.stack([HELD_OUT, row])), *weights
        image = preprocessing.normalize(resize(image, image_size, preprocessing))
        image = tf.ensure_shape(image, (*image_size, image.shape[-1]))
        label = resized_label(label, image_size, preprocessing)
        label = label if num_classes is None else target(label, task, num_classes)
        drawn = [masking.draw(tf.stack([HELD_OUT, row]))] if masking else []
        return image, label, *weights, *drawn

    examples = tf.data.Dataset.from_tensor_slices(rows)
    batches = _batched(examples, example, count, split)
    if isinstance(masking, Views):
        batches = parallel_map(batches, masking.batch)
    elif masking:
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
    """Returns the first held-out images of a data set, or noise.

    Args:
        name: The data set's name, as `load` takes it; None for noise.
        shape: Height, width, and channels.
        preprocessing: The model's preprocessing; the images are resized by it, but not scaled.
        count: The largest number of images.
        config: Says which images are held out.

    Returns:
        `(N, H, W, C)` uint8.

    Example:
        >>> sample_images("digits", (32, 32, 1), Preprocessing(), count=8).shape
        (8, 32, 32, 1)
    """
    if name is None:
        return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype="uint8")
    config = config or DataConfig()
    split = load(name, shape[-1], config).split(config.test_split)
    images = [
        resize(split.read(tf.constant(i)), shape[:2], preprocessing)
        for i in range(min(count, len(split)))
    ]
    return to_uint8(np.stack(images))


def _batched(numbers, example, count, split):
    """Batches `example(number, replace)` in order, computed in parallel.

    If an unreadable picture stops the run, its batch is dropped, and the numbers of the next batch
    show the gap. Catching an error at each picture would cost a third of the decoding.
    """
    whole = numbers.cardinality().numpy() % count == 0
    batched = lambda dataset: dataset.batch(count, drop_remainder=whole)
    if split.origin is None or not split.origin.unreadable.stop:
        return batched(parallel_map(numbers, lambda i: example(i, True)))
    quick = batched(parallel_map(numbers, lambda i: (i, example(i, False))))
    nothing = tf.data.Dataset.range(1).repeat().map(lambda _: _without_rows(quick.element_spec))
    readable = quick.ignore_errors(log_warning=False).concatenate(nothing)
    steps = tf.data.Dataset.zip(batched(numbers), readable)

    def check(expected, received):
        if not np.array_equal(expected, received):
            for number in expected:
                example(tf.constant(number), True)  # raises an error that names the picture
            split.origin.unreadable.fail(
                f"Images {expected} of the run could only be read the second time", known=False
            )
        return np.int32(0)

    def checked(expected, numbered_batch):
        received, batch = numbered_batch
        with tf.control_dependencies([tf.numpy_function(check, [expected, received], tf.int32)]):
            static = lambda x: tf.ensure_shape(tf.identity(x), (expected.shape[0], *x.shape[1:]))
            return tf.nest.map_structure(static, batch)

    return parallel_map(steps, checked)


def _without_rows(specs):
    return tf.nest.map_structure(lambda spec: tf.zeros((0, *spec.shape[1:]), spec.dtype), specs)


def _rows(batch, shard):
    """Returns the first row of a process in each batch, and its number of rows."""
    rank, processes = shard
    if batch % processes:
        raise ValueError(
            f"The number of processes must divide `batch`. Received: batch={batch} over "
            f"{processes} processes"
        )
    count = batch // processes
    return rank * count, count
