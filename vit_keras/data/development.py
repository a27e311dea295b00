"""A development split: training images held out to choose by (Table 4)."""

import dataclasses

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.files import choose_held_out
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
