"""Makes batches from a split; each batch is a pure function of the seed and its number."""

import dataclasses
from typing import Any

import keras
import numpy as np

from vit_keras.config import AugmentConfig
from vit_keras.data.augment import Augmentation, mix, mixes
from vit_keras.data.batches import EXAMPLE, HELD_OUT, PAIR, Batches, balanced, generator, shuffled
from vit_keras.data.dataset import Dataset, Split
from vit_keras.data.held_out import train_dev_test
from vit_keras.data.labels import LABEL_KINDS
from vit_keras.data.pretext import Masking, Views
from vit_keras.models import Preprocessing
from vit_keras.support.tasks import CLASSES, Task


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
    epoch goes through the split in a new order. The order and the augmentation of an example follow
    from the seed and the example's number alone. A resumed run therefore sees the same images as an
    uninterrupted one, and the shards of a batch are rows of the whole batch.

    Args:
        split: The training images.
        image_size: Height and width in pixels.
        preprocessing: The model's preprocessing.
        batch: The number of images per step, over all processes.
        augment_config: An `AugmentConfig`.
        seed: The run's seed.
        start_step: The first step.
        total_steps: The step after the last one.
        num_classes: K.
        task: What the model learns; decides the targets.
        shard: (r, n) for process r of n, which gets its rows of each batch.
        masking: Makes the inputs and targets, or the views, of a pretext task instead.
        is_balanced: Whether to draw images of all classes equally often; for pictures with several
            labels, the rarest one counts.
        threads: The number of threads that compute images: see `Batches`.

    Returns:
        Images `(B, H, W, C)` and targets `(B, K)` float32: one-hot or mixed classes, labels, or
        standardized numbers, with NaN for unknown ones. With `Masking`, the result of its `batch`;
        with `Views`, what it draws, and zeros `(B, 2)` as targets.

    Raises:
        ValueError: If n does not divide `batch`, or if mixing would split a pair.
    """
    first, count = _rows(batch, shard, 2 if mixes(augment_config) else 1)
    change = Augmentation(augment_config, image_size, preprocessing)
    batch_of = _joiner(split, change, masking, task, num_classes)
    index_of = shuffled(len(split), seed)
    if is_balanced:
        index_of = balanced(LABEL_KINDS[task.kind].strata(split.labels), seed)

    def make(step, each):
        start = (start_step + step) * batch + first
        numbers, pairs = range(start, start + count), range(start // 2, (start + count) // 2)
        made = batch_of([(index_of(n), (seed, EXAMPLE, n)) for n in numbers], each)
        if masking or not mixes(augment_config):
            return made
        return mix(made, (generator(seed, PAIR, pair) for pair in pairs), augment_config)

    return Batches(make, total_steps - start_step, threads)


def with_texts(batches: Batches, input_ids: np.ndarray) -> Batches:
    """Adds texts to batches, for `models.contrastive_model`.

    A table whose label column holds captions has a class for each distinct caption.

    Args:
        batches: From `train_batches` without mixing, or from `eval_batches`.
        input_ids: The ids of the text of each class, `(K, T)`.

    Returns:
        Batches of (images, ids `(B, T)`) and classes `(B,)` int32. Each depends on its number
        alone if the batch that it comes from does.

    Raises:
        ValueError: If an image of a batch belongs to two classes.

    Example:
        ```python
        captions = data.load("table:captions.csv", channels=3)
        ids, _ = weights.TextTokenizer("clip")(captions.class_names)
        options = {"image_size": (224, 224), "preprocessing": towers.image.preprocessing}
        batches = data.eval_batches(captions.split("test"), batch=64, **options)
        images_and_texts, classes = data.with_texts(batches, ids)[0]
        ```
    """

    def make(number, each):
        images, targets = batches[number]
        if targets.ndim > 1:
            if (targets.max(axis=-1) != 1).any():
                raise ValueError("Texts need unmixed images. Leave out MixUp and CutMix")
            targets = targets.argmax(axis=-1)
        return (images, input_ids[targets]), targets.astype("int32")

    return Batches(make, len(batches), threads=0, whole=batches.whole)


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
        num_classes: K, for targets as in `train_batches` instead of labels.
        task: As for `train_batches`.
        pad: Whether to fill the last batch with copies of the last image, with weight 0. The other
            images have equal weights, and weights are 1 on average, since Keras divides a weighted
            loss by the number of images in a batch.
        masking: Makes the inputs and targets, or the views, of a pretext task, the same each time.
        threads: The number of threads that compute images: see `Batches`.

    Returns:
        Images `(B, H, W, C)` and labels, `(B,)` int32 or `(B, K)` float32, or targets `(B, K)`.
        With `pad`, also weights `(B,)`. With `masking`, inputs and targets as in `train_batches`.

    Raises:
        ValueError: If n does not divide `batch`.
    """
    first, count = _rows(batch, shard)
    change, size = Augmentation(AugmentConfig(), image_size, preprocessing), len(split)
    batch_of = _joiner(split, change, masking, task, num_classes)
    total = -(-size // batch) * batch
    rows = np.arange(total).reshape(-1, batch)[:, first : first + count]
    rows = rows.reshape(-1) if pad else rows[rows < size]

    def make(number, each):
        numbers = rows[number * count : (number + 1) * count]
        weights = [np.float32(total / size) * (numbers < size)] if pad else []
        examples = [(min(n, size - 1), (HELD_OUT, n)) for n in numbers.tolist()]
        return batch_of(examples, each, *weights)

    return Batches(make, -(-len(rows) // count), threads, whole=len(rows) % count == 0)


def _joiner(split, change: Augmentation, masking, task, num_classes: int | None):
    """Returns a function that makes a batch of examples.

    An example is given by the index of a picture and the key of its generator. A batch has images
    or the views of a pretext task, targets or labels, and perhaps weights.
    """
    split = split.read_as(change.preprocessing.levels, change.preprocessing.bands)
    stacked = lambda rows: keras.tree.map_structure(lambda *values: np.stack(values), *rows)

    def example(row):
        index, key = row
        (picture, label), rng = split.picture(index), generator(*key)
        if isinstance(masking, Views):
            return masking.draw(picture, rng), np.zeros(2, "float32")  # views have no targets
        pixels, label = change.example(picture, label, rng)
        if masking:
            return (pixels, rng), masking.draw(rng)
        if num_classes is not None:
            label = LABEL_KINDS[task.kind].target(label, task, num_classes)
        return (pixels, rng), label

    def join(rows, each, *weights):
        inputs, targets = zip(*each(example, rows))
        if isinstance(masking, Views):
            return stacked(inputs), stacked(targets), *weights
        images = np.empty((len(targets), *inputs[0][0].shape), "float32")
        list(each(lambda i: change.finish(images[i], *inputs[i]), range(len(images))))
        made = images, stacked(targets), *weights
        return masking.batch(*made) if masking else made

    return join


def _rows(batch, shard, multiple=1):
    """Returns the first row of a process in each batch, and its number of rows."""
    rank, processes = shard
    if batch % (multiple * processes):
        raise ValueError(
            "`batch` must be a multiple of the number of processes, or of twice that number with "
            f"MixUp or CutMix, which mix pairs. Received: {batch=} over {processes} processes"
        )
    count = batch // processes
    return rank * count, count


@dataclasses.dataclass
class Feed:
    """Makes the batches of a run from its data set and its `Config`.

    Args:
        dataset: The data set.
        config: The run's `Config`.
        image_size: The model's height and width in pixels.
        preprocessing: The model's preprocessing.
        shard: (r, n) for process r of n, which gets its rows of each batch.
        task: What the model learns.

    Attributes:
        train: The training split.
        dev: The split used to monitor the run and to choose values that are not trained.
        test: The split that the run is judged on; usually equal to `dev`.
        num_classes: The number of classes.
        eval_options: The arguments of `eval_batches` that the model and the run determine.

    Example:
        ```python
        feed = data.Feed(dataset, config, model.input_shape[1:3], model.preprocessing)
        training, validation = feed.training(start=0), feed.validation(pad=False)
        model.fit(training, validation_data=validation, shuffle=False)
        ```
    """

    dataset: Dataset
    config: Any
    image_size: tuple[int, int]
    preprocessing: Preprocessing
    shard: tuple[int, int] = (0, 1)
    task: Task = CLASSES

    def __post_init__(self):
        config, size, preprocessing = self.config, self.image_size, self.preprocessing
        self.train, self.dev, self.test = train_dev_test(self.dataset, config.data)
        self.num_classes = len(self.dataset.class_names)
        self.targets: dict[str, Any] = {"num_classes": max(self.num_classes, 1), "task": self.task}
        masking: Masking | Views | None = None
        if config.pretext.is_dino:
            masking = Views(config.pretext.dino, size, preprocessing, config.augment.flip)
        elif config.pretext.is_active:
            masking = Masking(config.pretext, size, config.model.patch, preprocessing)
        options: dict[str, Any] = {"image_size": size, "preprocessing": preprocessing}
        options["threads"] = config.data.workers
        self.eval_options = {"batch": config.batch_eval, **options}
        self._common = {"shard": self.shard, "masking": masking, **options, **self.targets}

    def training(self, start: int) -> Batches:
        """Returns batches of training images and targets, starting with batch `start` of `fit`.

        With gradient accumulation, each batch is a part of an update. With a pretext task, batches
        are ((images, source), targets, weights) as `Masking.batch` makes them, or views and zeros.
        """
        config, parts_per_update = self.config, self.config.optimizer.accumulation_steps
        return train_batches(
            self.train,
            batch=config.batch // parts_per_update,
            augment_config=config.augment,
            seed=config.seed,
            start_step=start,
            total_steps=config.total_steps * parts_per_update,
            is_balanced=config.balance == "sampling",
            **self._common,
        )

    def validation(self, pad: bool) -> Batches:
        """Returns batches of development images and targets for `fit`.

        With `pad`, all batches are whole and have weights, as in `eval_batches`. With a pretext
        task, they hold its inputs, as in `training`.
        """
        return eval_batches(self.dev, pad=pad, **(self._common | self.eval_options))

    def held_out(self, split: Split | None = None) -> Batches:
        """Returns batches of all images of `test`, or of `split`, with labels as in `Split`."""
        return eval_batches(self.test if split is None else split, **self.eval_options)


def learned_task(dataset: Dataset, train: Split, config) -> Task:
    """Returns the task of a model that learns from a split of a data set.

    Numbers are standardized by the mean and standard deviation of the known ones.

    Args:
        dataset: The data set.
        train: The training images.
        config: The run's `Config`; its loss may need the shares of the classes.

    Raises:
        ValueError: If the loss needs shares, but a class has no training images, or a label
            belongs to all or none of them.

    Example:
        >>> dataset = data.load("digits", channels=1)
        >>> learned_task(dataset, dataset.split("train"), Config()).kind
        'classes'
    """
    if dataset.kind == "numbers":
        labels = train.labels.astype("float64")
        mean, std = np.nanmean(labels, axis=0), np.nanstd(labels, axis=0)
        std = np.where(std > 0, std, 1.0)  # 1 for a constant number
        return Task("numbers", mean=tuple(mean.tolist()), std=tuple(std.tolist()))
    if config.balance != "weights" and config.loss != "logit_adjusted":
        return Task(dataset.kind)
    names, labels = dataset.class_names, train.labels
    known = len(train) if dataset.kind == "classes" else (~np.isnan(labels)).sum(axis=0)
    shares = LABEL_KINDS[dataset.kind].counts(labels, len(names)) / known
    if wrong := [name for name, share in zip(names, shares) if not 0 < share < 1]:
        raise ValueError(
            "Balanced losses need training images with and without each class or label. "
            f"Received: only one of the two for {wrong}. Set balance to none, or to sampling"
        )
    return Task(dataset.kind, shares=tuple(shares.tolist()))
