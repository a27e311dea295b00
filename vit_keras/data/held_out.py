"""Chooses the images that a run is judged on."""

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset, Source, Split, UnreadableImages, without_held_out
from vit_keras.data.labels import LABEL_KINDS, NO_CLASS, no_labels
from vit_keras.support.tasks import KINDS

TRIES = 16  # orders of the units to try; the first that loses no label is taken


def train_dev_test(dataset: Dataset, config: DataConfig) -> tuple[Split, Split, Split]:
    """Returns the splits that a run is trained on, tuned on, and judged on.

    With `config.fold`, the run is judged on one of several equal parts of the training split. With
    `config.dev_percent`, its weights, temperature and thresholds are chosen on that share of each
    class of the other images (the paper's development split, Table 4). `config.split_seed` decides
    these parts, a group stays whole (see `divide`), and the test split is not used. Unless both are
    given, the last two splits are the same.

    Example:
        >>> config = DataConfig(dev_percent=25.0, fold=(0, 5))
        >>> [len(split) for split in train_dev_test(data.load("digits", 1), config)]
        [862, 287, 288]
    """
    train, held_out = dataset.split(config.train_split), list[Split]()

    def held_out_of(train, number=1, **share):
        known = range(len(train)), dataset.kind, train.labels, train.groups
        is_out = divide(*known, seed=config.split_seed, **share) == number
        held_out.insert(0, train.part(np.flatnonzero(is_out)))
        return train.part(np.flatnonzero(~is_out))

    if config.fold:
        number, folds = config.fold
        train = held_out_of(train, number, folds=folds)
    if config.dev_percent:
        train = held_out_of(train, percent=config.dev_percent)
    held_out = held_out or [dataset.split(config.test_split)]
    return train, held_out[0], held_out[-1]


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
    out first, its groups in an order that depends on their names and the seed alone. If a label
    has at least two groups, no part gets all of them, so a model trained on the other parts has
    seen it.

    Args:
        names: The images' names, or their numbers.
        kind: What the labels are: a name in `vit_keras.support.tasks.KINDS`.
        labels: As `Split.labels`.
        groups: The group of each image, empty for an image without one; None without groups.
        seed: Decides the order.
        folds: The number of equal parts; 0 for two parts.
        percent: The percentage of images in part 1 of two. Part 1 gets an image of each label that
            has at least two groups; part 0 is the rest.

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
        start = f"{seed}/{attempt}" if attempt else seed
        digests = np.array([path_hash(f"{start}/{name}")[:16] for name in numbers])
        ranks = np.argsort(np.argsort(digests))  # one for each unit
        part, lost = _deal(ranks[unit[image]], label, len(numbers), folds, percent)
        if lost < fewest:
            best, fewest = part[ranks], lost
        if not lost:
            break
    return best[unit]


def _deal(unit, label, count, folds, percent) -> tuple[np.ndarray, int]:
    """Deals units 0 to `count` - 1; each row of `unit` and `label` is one label of an image.

    Returns:
        The part of each unit, and the number of labels that have two units or more, all in one
        part, so that the other parts lack them.
    """
    pairs, images = np.unique(label.astype("int64") * count + unit, return_counts=True)
    label, unit = np.divmod(pairs, count)  # in the order of the labels, then of the units
    part, units = np.zeros(count, int), np.bincount(label)
    if len(pairs) == count and images.max(initial=1) == 1:  # dealt in turn, fast for millions
        if folds:
            part[unit] = np.arange(count) % folds
        else:
            place = np.arange(count) - np.repeat(np.cumsum(units) - units, units)
            part[unit] = place < np.repeat(_wanted(units, units, 1, percent), units)
        return part, 0
    return _deal_units(label, unit, images, units, folds, percent)


def _wanted(images, units, least, percent):
    """Returns how many images of a label to hold out: at least `least` if it has several units."""
    share = np.round(images * percent / 100).astype(int)
    return np.where(units > 1, np.clip(share, least, images - 1), 0)


def _deal_units(label, unit, images, units, folds, percent) -> tuple[np.ndarray, int]:
    """Does what `_deal` does; each row is a label, a unit, and their number of shared images."""
    sums = np.bincount(label, images).astype(int)
    edges = np.minimum(np.cumsum(units) - units, len(images) - 1)
    out = _wanted(sums, units, np.minimum.reduceat(images, edges), percent)
    needs = (np.tile(sums / folds, (folds, 1)) if folds else np.array([sums - out, out])).tolist()
    ranks = np.lexsort((np.arange(len(unit)), label, units[label]))  # the rarest label first
    rows = [*zip(*(column[ranks].tolist() for column in (label, unit, images)))]
    of_unit: list[list] = [[] for _ in range(int(unit.max()) + 1)]
    for k, u, size in rows:
        of_unit[u].append((k, size))
    total, left, part = units.tolist(), units.tolist(), [-1] * len(of_unit)
    holds, sizes = [[0] * len(total) for _ in needs], [0] * len(needs)

    def fits(p):
        """Whether each label of unit u can still occur in another part if u goes to part p."""
        return not any(
            left[k] < 2 and total[k] - left[k] == holds[p][k] and (total[k] > 1 or not folds)
            for k, _ in of_unit[u]
        )

    for k, u, size in rows:
        if part[u] >= 0:
            continue
        order = [1, 0] if needs[-1][k] >= size / 2 else [0, 1]
        if folds:
            order = sorted(range(folds), key=lambda p: (-needs[p][k], sizes[p]))
        part[u] = p = next(filter(fits, order), order[0] if folds else 0)
        for other, size in of_unit[u]:
            left[other] -= 1
            holds[p][other] += 1
            needs[p][other] -= size
            sizes[p] += size
    return np.array(part), int(((units > 1) & (np.array(holds) == units).any(axis=0)).sum())


def open_source(source: Source, channels: int, config: DataConfig, labeled: bool = True) -> Dataset:
    """Makes a data set, and holds out `config.test_percent` of train if nothing is held out.

    Held-out splits without any label are left out, and so are pictures without a class if
    `config.unknown` marks them. The same share of each class or label is held out, unless finding
    the labels would require reading masks.

    Args:
        source: The pictures.
        channels: The number of channels of encoded pictures.
        config: The share to hold out, the seed, and how to read pictures.
        labeled: Whether pictures need a class. If not, a source in which some lack one has no
            `class_names`.

    Raises:
        ValueError: If a picture has no class. The message names it.
    """
    labels, splits, is_class = source.labels, source.splits, source.labels.kind == "classes"
    values = np.zeros(0) if callable(labels.values) else labels.values
    unknown: Any = np.equal(values, NO_CLASS) if values.ndim == 1 else np.isnan(values).all(axis=1)
    if unknown.any() and is_class and not labeled:
        source = dataclasses.replace(source, labels=(labels := no_labels(len(values))))
    elif unknown.any() and labeled:
        splits = {k: i for k, i in splits.items() if k == "train" or not unknown[i].all()}
        without = np.concatenate([i[unknown[i]] for i in splits.values()])
        if is_class and len(without) and not config.unknown:
            raise ValueError(
                f"Every picture must have a class. Received: {source.name!r} with {len(without)} "
                f"without one, such as {source.name_of(int(without[0]))}. Name the column of the "
                "classes in data.label_columns, fill it in, or train without labels"
            )
        if is_class:
            splits = {k: i[~unknown[i]] for k, i in splits.items()}
    splits, notes = _hold_out(source, splits, config)
    unreadable = UnreadableImages(config.on_corrupt == "stop")
    known = channels, config.white, tuple(config.bands), unreadable
    return Dataset(
        source.name,
        {name: Split(source, indices, *known) for name, indices in splits.items()},
        labels.names,
        unreadable,
        kind=labels.kind,
        notes=(*notes, *source.notes, *labels.notes),
        warnings=source.warnings,
    )


def _hold_out(source: Source, splits: dict[str, np.ndarray], config: DataConfig):
    """Divides the "train" split if there is no held-out split, and returns the splits and notes."""
    train, percent = splits.get("train", ()), config.test_percent
    if not len(train) or not without_held_out(splits, config.test_split):
        return splits, ()
    kind, outputs, labels, _ = source.labels
    labels = np.zeros((len(train), 1)) if callable(labels) else labels[train]
    kind = "numbers" if kind == "masks" else kind  # so no mask is read
    names = [source.keys[i] for i in train] if source.keys else range(len(train))
    groups = [source.groups[i] for i in train] if source.groups else None
    part = divide(names, kind, labels, groups, seed=config.split_seed, percent=percent)
    if not part.any():
        return splits, ()
    unit = f"each {KINDS[kind].one}" if outputs and kind != "numbers" else "the pictures"
    text = (
        f"no held-out split: {percent:g}% of {unit}, {part.sum():,} pictures, are held out"
        f"{', in whole groups' if groups else ''}. data.test_percent sets the share"
    )
    return splits | {"train": train[part == 0], "test": train[part == 1]}, (text,)


def path_hash(text: str) -> bytes:
    """Hashes a path, to order paths at random but always in the same way."""
    return hashlib.sha256(os.fsencode(text)).digest()
