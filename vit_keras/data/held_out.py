"""A development split: training images held out to choose by (Table 4)."""

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.splits import Dataset, Split


def train_and_test(dataset: Dataset, config: DataConfig) -> tuple[Split, Split]:
    """The splits that a run trains on and is judged by.

    With `dev_percent` both are parts of the training split: of each class that much is held out,
    by `split_seed`, and the test split is left alone.
    """
    train = dataset.split(config.train_split)
    if not config.dev_percent:
        return train, dataset.split(config.test_split)
    how = dataclasses.replace(config, test_percent=config.dev_percent)
    held_out = choose_held_out([str(i) for i in range(len(train))], train.labels.tolist(), how)
    return train.part(np.flatnonzero(~held_out)), train.part(np.flatnonzero(held_out))


def choose_held_out(paths: Sequence[str], classes: Sequence, config: DataConfig) -> np.ndarray:
    """Which images are held out, `(N,)` bool: `test_percent` of each class, by `split_seed`.

    An image's place follows from its path and the seed, whatever else the folder holds.
    """
    held_out, by_class = np.zeros(len(paths), bool), {}
    for i, name in enumerate(classes):
        by_class.setdefault(name, []).append(i)
    for members in by_class.values():
        count = min(round(len(members) * config.test_percent / 100), len(members) - 1)
        if config.test_percent and not count:
            count = int(len(members) > 1)
        members.sort(key=lambda i: path_hash(f"{config.split_seed}/{paths[i]}"))
        held_out[members[:count]] = True
    return held_out


def path_hash(text):
    return hashlib.sha256(text.encode()).digest()
