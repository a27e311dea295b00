"""Chooses the images that a run is judged on."""

import dataclasses
import hashlib
import os
from collections.abc import Sequence

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset, Split, without_held_out
from vit_keras.data.labels import LABEL_KINDS

TRIES = 16  # orders of the units to try; the first that loses no label is taken


def train_and_test(dataset: Dataset, config: DataConfig) -> tuple[Split, Split]:
    """Returns the splits that a run is trained on and judged on.

    With `config.dev_percent`, both are parts of the training split (the paper's development split,
    Table 4): that share of each class is held out by `config.split_seed`, and the test split is
    not used. With `config.fold`, one of several equal parts is held out in the same way, and
    `train_dev_test` divides the others by `config.dev_percent`. A group stays whole: see `divide`.

    Example:
        >>> train, test = train_and_test(data.load("digits", 1), DataConfig(dev_percent=10.0))
        >>> len(train), len(test)  # both are parts of the training split
        (1295, 142)
    """
    train = dataset.split(config.train_split)
    if not config.dev_percent and config.fold is None:
        return train, dataset.split(config.test_split)
    number, folds = config.fold or (1, 0)
    known = range(len(train)), dataset.kind, train.labels, train.groups
    share = {"folds": folds} if folds else {"percent": config.dev_percent}
    held_out = divide(*known, seed=config.split_seed, **share) == number
    return train.part(np.flatnonzero(~held_out)), train.part(np.flatnonzero(held_out))


def train_dev_test(dataset: Dataset, config: DataConfig) -> tuple[Split, Split, Split]:
    """Returns the splits that a run is trained on, tuned on, and judged on.

    With `config.fold` and `config.dev_percent`, the run is judged on the fold, and its weights,
    temperature and thresholds are chosen on that share of the other training images. Otherwise, the
    last two splits are both the second one of `train_and_test`.

    Example:
        >>> config = DataConfig(dev_percent=25.0, fold=(0, 5))
        >>> [len(split) for split in train_dev_test(data.load("digits", 1), config)]
        [862, 287, 288]
    """
    if config.fold is None or not config.dev_percent:
        train, test = train_and_test(dataset, config)
        return train, test, test
    rest, test = train_and_test(dataset, dataclasses.replace(config, dev_percent=0.0))
    inner = dataclasses.replace(dataset, splits={"train": rest})
    config = dataclasses.replace(config, fold=None, train_split="train")
    return *train_and_test(inner, config), test


def divide(
    names: Sequence[str] | range,
    kind: str,
    labels: np.ndarray,
    groups: Sequence[str] | None = None,
    *,
    seed: int,
    folds: int = 0,
    percent: float = 0.0,
) -> np.ndarray:
    """Divides images so that each part has its share of each label, and a group stays whole.

    This is iterative stratification (Sechidis et al., 2011) with groups: the rarest label is dealt
    out first, its groups in an order that follows from their names and the seed alone. If a label
    has at least two groups, no part gets all of them, so a model trained on the other parts has
    seen it.

    Args:
        names: The images' names, or their numbers.
        kind: What the labels are: a name in `vit_keras.support.tasks.KINDS`.
        labels: As `Split.labels`.
        groups: The group of each image, empty for an image without one; None without groups.
        seed: Decides the order.
        folds: The number of equal parts; 0 for two parts.
        percent: The percentage of part 1 of two, which gets an image of each label that has two
            groups. Part 0 is the rest.

    Returns:
        The part of each image, `(N,)` int.
    """
    if groups is not None:
        names = [f"group {group}" if group else str(name) for group, name in zip(groups, names)]
    numbers: dict[str | int, int] = {}
    unit = np.array([numbers.setdefault(name, len(numbers)) for name in names], int)
    image, label = LABEL_KINDS[kind].members(labels)
    best, fewest = np.zeros(len(numbers), int), len(labels) + 1
    for attempt in range(TRIES if folds or percent else 0):
        ranks = _ranks(numbers, f"{seed}/{attempt}" if attempt else seed)
        part, lost = _deal(ranks[unit[image]], label, len(numbers), folds, percent)
        if lost < fewest:
            best, fewest = part[ranks], lost
        if not lost:
            break
    return best[unit]


def _ranks(names, seed) -> np.ndarray:
    """Returns the rank of each name in an order that follows from the names and the seed alone."""
    digests = b"".join(path_hash(f"{seed}/{name}")[:16] for name in names)
    high, low = np.frombuffer(digests, ">u8").astype("u8").reshape(-1, 2).T
    ranks = np.empty(len(high), int)
    ranks[np.lexsort((low, high))] = np.arange(len(high))
    return ranks


def _deal(unit, label, count, folds, percent) -> tuple[np.ndarray, int]:
    """Deals units 0 to `count` - 1; each row of `unit` and `label` is one label of an image.

    Returns:
        The part of each unit, and the number of labels with two units or more that lie in no part,
        or in only one, so that the others would lack them.
    """
    pairs, images = np.unique(label.astype("int64") * count + unit, return_counts=True)
    label, unit = np.divmod(pairs, count)  # in the order of the labels, then of the units
    part, units = np.zeros(count, int), np.bincount(label)
    if len(pairs) == count and images.max(initial=1) == 1:  # the same as below, for millions
        if folds:
            part[unit] = np.arange(count) % folds
        else:
            place = np.arange(count) - np.repeat(np.cumsum(units) - units, units)
            part[unit] = place < np.repeat(_wanted(units, units, 1, percent), units)
        return part, 0
    of_unit: list[list] = [[] for _ in range(count)]
    of_label: list[list] = [[] for _ in units]
    for pair in zip(label.tolist(), unit.tolist(), images.tolist()):
        of_label[pair[0]].append(pair[1:])
        of_unit[pair[1]].append((pair[0], pair[2]))
    table = _Table(of_label, folds, percent)
    dealt = np.zeros(count, bool)
    for label in np.argsort(units, kind="stable").tolist():
        for unit, size in of_label[label]:
            if not dealt[unit]:
                dealt[unit], part[unit] = True, table.add(label, size, of_unit[unit])
    return part, table.lost()


def _wanted(images, units, least, percent):
    """Returns the number of a label's images to hold out: at least one unit if there are two."""
    share = np.round(images * percent / 100).astype(int)
    return np.where(units > 1, np.clip(share, least, images - 1), 0)


class _Table:
    """The number of units of each label in each part, and of images that the part still needs."""

    def __init__(self, of_label, folds, percent):
        sizes = [[size for _, size in of] or [0] for of in of_label]
        images, self.units, self.folds = [*map(sum, sizes)], [*map(len, of_label)], folds
        least = np.array([*map(min, sizes)])
        out = _wanted(np.array(images), np.array(self.units), least, percent).tolist()
        rest = [n - held_out for n, held_out in zip(images, out)]
        self.wanted = [[n / folds for n in images] for _ in range(folds)] or [rest, out]
        self.holds = [[0] * len(images) for _ in self.wanted]
        self.left = [*self.units]
        self.sizes = [0] * len(self.holds)

    def add(self, label, size, labels) -> int:
        """Chooses a part for a unit with `labels`, and counts the unit for one of them."""
        if self.folds:
            rank = lambda part: (-self.wanted[part][label], self.sizes[part])
            order = sorted(range(len(self.holds)), key=rank)
        else:
            order = [1, 0] if self.wanted[1][label] >= size / 2 else [0, 1]
        fits = (part for part in order if self._fits(part, labels))
        part = next(fits, order[0] if self.folds else 0)
        for label, size in labels:
            self.left[label] -= 1
            self.holds[part][label] += 1
            self.wanted[part][label] -= size
            self.sizes[part] += size
        return part

    def _fits(self, part, labels):
        """Whether each of a unit's labels can still lie in another part if the unit goes here."""
        for label, _ in labels:
            outside = self.units[label] - self.left[label] - self.holds[part][label]
            if not outside and self.left[label] < 2 and not (self.folds and self.units[label] == 1):
                return False
        return True

    def lost(self) -> int:
        return sum(
            count > 1 and any(holds[label] == count for holds in self.holds)
            for label, count in enumerate(self.units)
        )


def hold_out(
    dataset: Dataset, lacks: str, config: DataConfig, names: Sequence[str] | None = None
) -> Dataset:
    """Holds out `config.test_percent` of the split train if a data set holds out nothing.

    Each class or label has its share, unless the labels are in the records, which are not read.

    Args:
        dataset: The data set.
        lacks: What it lacks if it has no held-out split, such as "no folder test".
        config: The share, and the seed.
        names: The names of the training images, which decide the draw; None for their numbers.

    Returns:
        The data set, or one with the splits "train" and "test", and with `held_out_by`.
    """
    train, percent = dataset.splits.get("train"), config.test_percent
    if not train or not without_held_out(dataset.splits, config.test_split):
        return dataset
    kind, labels = dataset.kind, train.labels if train.labels_are_known else None
    if labels is None:
        kind, labels = "numbers", np.zeros((len(train), 1))
    known = names or range(len(train)), kind, labels, train.groups
    held_out = divide(*known, seed=config.split_seed, percent=percent) == 1
    if not held_out.any():
        return dataset
    divided = {"train": train.part(np.flatnonzero(~held_out))}
    divided["test"] = train.part(np.flatnonzero(held_out))
    unit = LABEL_KINDS[dataset.kind].unit if dataset.class_names else "the pictures"
    whole = "" if train.groups is None else ", in whole groups"
    text = (
        f"{lacks}: {percent:g} % of {unit}, {held_out.sum():,} pictures, are held out{whole}. "
        f"Give data.test_percent, or a {lacks.removeprefix('no ')}"
    )
    return dataclasses.replace(dataset, splits=dataset.splits | divided, held_out_by=text)


def path_hash(text: str) -> bytes:
    """Hashes a path, to order paths at random but always in the same way."""
    return hashlib.sha256(os.fsencode(text)).digest()
