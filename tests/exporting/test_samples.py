"""The images on which exported files are compared."""

import numpy as np
import pytest

from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data import Split
from vit_keras.exporting import samples
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once  # no Keras


def test_each_class_has_its_share_in_a_sorted_split():
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    chosen = samples.spread(Split(labels, lambda i: None), 100)
    assert (np.diff(chosen) > 0).all()
    np.testing.assert_allclose(np.bincount(labels[chosen]), [60, 30, 10], atol=1)
    np.testing.assert_array_equal(chosen, samples.spread(Split(labels, lambda i: None), 100))
    within = np.sort(chosen[labels[chosen] == 0])
    assert within.min() < 60 and within.max() > 540  # the whole class is drawn from


def test_images_and_labels_belong_together():
    preprocessing, config = Preprocessing(mean=(0.3,), std=(0.2,)), DataConfig()
    images, labels = samples.from_dataset("digits", (16, 16, 1), preprocessing, 70, config)
    split = data.load("digits", 1, config).split(config.test_split)
    indices = samples.spread(split, 70)
    np.testing.assert_array_equal(labels, split.labels[indices])
    sizes = [(16, 16), preprocessing]
    expected = [np.round(data.resize(split.read(i), *sizes)) for i in indices]
    np.testing.assert_array_equal(images, np.stack(expected).astype("uint8"))
    assert np.bincount(labels, minlength=10).min() >= 5
