"""Makes batches from a split; every batch is a pure function of the seed and its number."""

import keras
import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data import mixing
from vit_keras.data.augment import Augmentation, resized_label
from vit_keras.data.batches import Batches
from vit_keras.data.datasets import load
from vit_keras.data.depth import as_array, at_levels, to_levels
from vit_keras.data.label_kinds import LABEL_KINDS
from vit_keras.data.masking import Masking
from vit_keras.data.order import EXAMPLE, HELD_OUT, PAIR, balanced, generator, shuffled
from vit_keras.data.splits import Split
from vit_keras.data.transforms import fit, normalize_into
from vit_keras.data.views import Views
from vit_keras.models import Preprocessing
from vit_keras.tasks import CLASSES, Task


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
    threads: int | None = None,
) -> Batches:
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
        threads: The number of threads that compute images: see `Batches`.

    Returns:
        Images `(B, H, W, C)` and targets `(B, K)` float32: one-hot or mixed classes, labels, or
        standardized numbers, with NaN for unknown ones; with `masking`, what its `batch` returns.

    Raises:
        ValueError: If n does not divide `batch`, or if mixing would split a pair.
    """
    split = split.read_as(preprocessing.levels, preprocessing.bands)
    first, count = _rows(batch, shard)
    mixing.check_pairs(augment_config, batch, shard[1])
    change = Augmentation(augment_config, image_size, preprocessing)
    kind = LABEL_KINDS[task.kind]
    if is_balanced:
        index_of = balanced(kind.strata(split.labels), seed)
    else:
        index_of = shuffled(len(split), seed)

    def example(number):
        picture, label = split.picture(index_of(number))
        rng = generator(seed, EXAMPLE, number)
        if isinstance(masking, Views):
            return (masking.draw(picture, rng),)
        pixels, label = change.example(picture, label, rng)
        drawn = [masking.draw(rng)] if masking else []
        return (pixels, rng), kind.target(label, task, num_classes), *drawn

    def make(step, each):
        start = (start_step + step) * batch + first
        examples = [*each(example, range(start, start + count))]
        if isinstance(masking, Views):
            return masking.batch(*stacked(examples))
        unfinished, *columns = zip(*examples)
        images = finished(change.finish, unfinished, each)
        targets, *drawn = stacked(zip(*columns))
        if masking:
            return masking.batch(images, *drawn)
        pairs = range(start // 2, (start + count) // 2)
        return change.batch(images, targets, [generator(seed, PAIR, pair) for pair in pairs])

    return Batches(make, total_steps - start_step, threads)


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
    threads: int | None = None,
) -> Batches:
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
        threads: The number of threads that compute images: see `Batches`.

    Returns:
        Images `(B, H, W, C)` and labels, `(B,)` int32 or `(B, K)` float32, or targets `(B, K)`.
        With `pad`, weights `(B,)` as well. With `masking`, what its `batch` returns.

    Raises:
        ValueError: If n does not divide `batch`, or if `pad` is given without `num_classes`.
    """
    split = split.read_as(preprocessing.levels, preprocessing.bands)
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

    def example(row):
        picture, label = split.picture(min(int(row), size - 1))
        rng = generator(HELD_OUT, int(row))
        weights = [np.float32(weight * (row < size))] if pad else []
        if isinstance(masking, Views):
            return masking.draw(picture, rng), *weights
        pixels = as_array(fit(picture, image_size, preprocessing))
        label = resized_label(label, image_size, preprocessing)
        label = label if num_classes is None else target(label, task, num_classes)
        drawn = [masking.draw(rng)] if masking else []
        return (pixels, preprocessing), label, *weights, *drawn

    def make(number, each):
        examples = [*each(example, rows[number * count : (number + 1) * count])]
        if isinstance(masking, Views):
            return masking.batch(*stacked(examples))
        unfinished, *columns = zip(*examples)
        images = finished(normalize_into, unfinished, each)
        labels, *more = stacked(zip(*columns))
        return masking.batch(images, *more[::-1]) if masking else (images, labels, *more)

    return Batches(make, -(-len(rows) // count), threads, whole=len(rows) % count == 0)


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
        `(N, H, W, C)`: uint8 for models of 8 bits, uint16 for more, and float32 for floats.

    Example:
        >>> sample_images("digits", (32, 32, 1), Preprocessing(), count=8).shape
        (8, 32, 32, 1)
    """
    if name is None:
        noise = np.random.default_rng(0).integers(0, 256, (count, *shape), dtype="uint8")
        return as_array(at_levels(noise, preprocessing.levels))
    config = config or DataConfig()
    split = load(name, shape[-1], config).split(config.test_split)
    split = split.read_as(preprocessing.levels, preprocessing.bands)
    pictures = (split.picture(i)[0] for i in range(min(count, len(split))))
    images = np.stack([as_array(fit(p, shape[:2], preprocessing)) for p in pictures])
    return to_levels(images, preprocessing.levels)


def finished(finish, unfinished, each) -> np.ndarray:
    """Calls `finish(image, pixels, more)` for each image of a batch: `(B, H, W, C)` float32."""
    images = np.empty((len(unfinished), *unfinished[0][0].shape), "float32")
    for _ in each(lambda i: finish(images[i], *unfinished[i]), range(len(images))):
        pass
    return images


def stacked(examples):
    """Stacks examples, tuples of arrays and dictionaries of them, along a new first axis."""
    return keras.tree.map_structure(lambda *values: np.stack(values), *examples)


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
