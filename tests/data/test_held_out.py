"""Which images are held out, against the rule in plain Python."""

import hashlib

import numpy as np
import pytest

from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset
from vit_keras.data.held_out import divide, train_dev_test

pytestmark = pytest.mark.once


def ranked(paths, classes, seed):
    """The images of each class, the first class first, by the SHA-256 of the seed and the path."""
    key = lambda i: hashlib.sha256(f"{seed}/{paths[i]}".encode()).digest()
    for name in sorted({*classes}):
        yield sorted((i for i, other in enumerate(classes) if other == name), key=key)


def share(paths, classes, seed, percent):
    for members in ranked(paths, classes, seed):
        count = min(round(len(members) * percent / 100), len(members) - 1)
        yield from members[: count or int(percent > 0 and len(members) > 1)]


def test_parts_of_the_training_images_are_held_out(rng):
    labels = rng.integers(0, 4, 101)
    split = data.from_arrays(np.arange(101, dtype="uint8").reshape(101, 1, 1, 1), labels)
    dataset = Dataset("x", {"train": split}, ("a", "b", "c", "d"))
    numbers = lambda part: [int(part.read(i)[0, 0, 0]) for i in range(len(part))]
    dealt = [i for members in ranked(range(101), labels.tolist(), 5) for i in members]
    dev = share(range(101), labels.tolist(), 5, 10)
    for held_out, options in (({*dev}, {"dev_percent": 10.0}), ({*dealt[2::3]}, {"fold": (2, 3)})):
        train, _, test = train_dev_test(dataset, DataConfig(split_seed=5, **options))
        assert numbers(test) == sorted(held_out)
        assert numbers(train) == sorted({*range(101)} - held_out)


def random_table(rng):
    """The kind and labels of some images, which units they belong to, and those of each label."""
    count, outputs = rng.integers(2, 90), rng.integers(1, 8)
    kind = str(rng.choice(["classes", "labels", "numbers"]))
    if kind == "classes":
        labels = rng.choice(outputs, count, p=rng.dirichlet(np.full(outputs, 0.4)))
        has = labels[:, None] == range(outputs)
    elif kind == "labels":
        labels = (rng.random((count, outputs)) < rng.random(outputs) ** 2).astype("float32")
        labels[rng.random(labels.shape) < 0.1] = np.nan
        yes, no = labels == 1, labels == 0
        has = np.where(yes.sum(axis=0) <= no.sum(axis=0), yes, no)
    else:
        labels = rng.normal(size=(count, outputs))
        has = np.ones((count, 1), bool)
    groups = [str(g) if g < 40 else "" for g in rng.integers(0, rng.integers(2, 60), count)]
    groups = groups if rng.random() < 0.7 else None
    units = [f"group {g}" if g else f"image {i}" for i, g in enumerate(groups or [""] * count)]
    return kind, labels, groups, units, [{units[i] for i in np.flatnonzero(k)} for k in has.T]


def test_no_division_parts_a_group_or_loses_a_label():
    """1 000 random tables; a label of one unit is trained on, and others lie on both sides."""
    rng, kept = np.random.default_rng(0), 0
    for seed in range(1000):
        kind, labels, groups, units, of_label = random_table(rng)
        folds = int(rng.integers(2, 7)) if seed % 2 else 0
        share = {"folds": folds} if folds else {"percent": float(rng.choice([5, 10, 50]))}
        parts = divide([*range(len(units))], kind, labels, groups, seed=seed, **share)
        assert len({*zip(units, parts)}) == len({*units}), "a group is in two parts"
        inside = [{u for u, p in zip(units, parts) if p == part} for part in range(folds or 2)]
        for of in of_label:
            if not folds:
                assert not of or of & inside[0], "a label is never trained on"
        several = [of for of in of_label if len(of) > 1]
        held_out = inside if folds else inside[1:]
        kept += not any(
            of <= part or (not folds and not of & part) for of in several for part in held_out
        )
    assert kept >= 990
