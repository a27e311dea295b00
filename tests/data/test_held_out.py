"""Which images are held out, against the rule in plain Python."""

import hashlib

import numpy as np
import pytest

from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset
from vit_keras.data.held_out import choose_held_out, train_and_test

pytestmark = pytest.mark.once


def ranked(paths, classes, seed):
    """The images of each class, the first class first, by the SHA-256 of the seed and the path."""
    key = lambda i: hashlib.sha256(f"{seed}/{paths[i]}".encode()).digest()
    for name in dict.fromkeys(classes):
        yield sorted((i for i, other in enumerate(classes) if other == name), key=key)


def share(paths, classes, seed, percent):
    for members in ranked(paths, classes, seed):
        count = min(round(len(members) * percent / 100), len(members) - 1)
        yield from members[: count or int(percent > 0 and len(members) > 1)]


@pytest.mark.parametrize("percent", [0, 1, 12.5, 50, 99])
def test_a_share_of_each_class_is_held_out(rng, percent):
    classes = [["cat", "dog", "ölm"][i] for i in rng.integers(0, 3, 200)] + ["alone"]
    paths = [f"{name}/{rng.integers(1000)}.png" for name in classes]
    chosen = choose_held_out(paths, classes, DataConfig(test_percent=percent, split_seed=3))
    assert chosen.nonzero()[0].tolist() == sorted(share(paths, classes, 3, percent))
    assert not chosen[-1] and chosen.any() == (percent > 0)


def test_parts_of_the_training_images_are_held_out(rng):
    """`dev_percent` and `fold` know the images by their numbers."""
    labels = rng.integers(0, 4, 101)
    split = data.from_arrays(np.arange(101, dtype="uint8").reshape(101, 1, 1, 1), labels)
    dataset = Dataset("x", {"train": split}, ("a", "b", "c", "d"))
    numbers = lambda part: [int(part.read(i)[0, 0, 0]) for i in range(len(part))]
    dealt = [i for members in ranked(range(101), labels.tolist(), 5) for i in members]
    dev = share(range(101), labels.tolist(), 5, 10)
    for held_out, options in (({*dev}, {"dev_percent": 10.0}), ({*dealt[2::3]}, {"fold": (2, 3)})):
        train, test = train_and_test(dataset, DataConfig(split_seed=5, **options))
        assert numbers(test) == sorted(held_out)
        assert numbers(train) == sorted({*range(101)} - held_out)
