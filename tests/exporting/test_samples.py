"""Which real images an export is compared on."""

import numpy as np
import pytest

from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data import Split, tf_preprocess
from vit_keras.exporting import samples
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once  # indices and pixels, no Keras


def test_a_split_sorted_by_class_is_drawn_from_by_its_shares():
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    chosen = samples.spread(Split(labels, lambda i: None), 100)
    assert (np.diff(chosen) > 0).all()
    np.testing.assert_allclose(np.bincount(labels[chosen]), [60, 30, 10], atol=1)
    np.testing.assert_array_equal(chosen, samples.spread(Split(labels, lambda i: None), 100))
    within = np.sort(chosen[labels[chosen] == 0])
    assert within.min() < 60 and within.max() > 540  # drawn from all of the class


def test_fewer_images_than_classes_are_of_different_classes():
    chosen = samples.spread(Split(np.repeat(np.arange(50), 4), lambda i: None), 20)
    assert len(set(chosen // 4)) == 20


def test_labels_beside_the_images_are_not_read_for_a_draw():
    def labels():
        raise AssertionError("read")

    chosen = samples.spread(Split(labels, encoded=lambda i: None, size=1000), 100)
    assert len(set(chosen)) == 100 and 400 < chosen.mean() < 600
    np.testing.assert_array_equal(samples.spread(Split(labels, size=3), 8), [0, 1, 2])


def test_images_and_labels_belong_together():
    how, config = Preprocessing(mean=(0.3,), std=(0.2,)), DataConfig()
    images, labels = samples.labelled("digits", (16, 16, 1), how, 70, config)
    split = data.load("digits", 1, config).split(config.test_split)
    indices = samples.spread(split, 70)
    np.testing.assert_array_equal(labels, split.labels[indices])
    expected = [np.round(tf_preprocess.resize(split.read(i), (16, 16), how)) for i in indices]
    np.testing.assert_array_equal(images, np.stack(expected).astype("uint8"))
    assert np.bincount(labels, minlength=10).min() >= 5
