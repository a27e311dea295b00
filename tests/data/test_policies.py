"""Policies and erasing change an image as the key says, and as published."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.data.drawing import drawn
from vit_keras.config import AugmentConfig
from vit_keras.data import policies, tf_preprocess
from vit_keras.data.erasing import box, erase
from vit_keras.data.operations import OPERATIONS
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once

SIZE = (24, 20)


@pytest.mark.parametrize("policy", ["autoaugment", "trivialaugment"])
def test_policies_change_whole_pixels_by_what_the_key_draws(rng, policy):
    (chosen,) = policies.chosen(AugmentConfig(policy=policy))
    change = tf.function(
        policies.change([chosen, policies.color_jitter(0.5)], (16, 12)), autograph=False
    )
    image = rng.uniform(0, 255, (16, 12, 3)).astype("float32")
    for i in range(20):
        key = tf.constant([5, i], tf.int64)
        numbers = tf.random.stateless_uniform((chosen.rows + 1, 4), key).numpy()
        expected = Image.fromarray(np.round(image).astype("uint8"))
        steps = list(chosen.steps(numbers[:-1], (16, 12)))
        for name, *amounts in [*steps, *policies.color_jitter(0.5).steps(numbers[-1:], (16, 12))]:
            expected = OPERATIONS[name](expected, *amounts)
        np.testing.assert_array_equal(change(tf.constant(image), key), np.asarray(expected))


@pytest.mark.parametrize("interpolation", policies.RESAMPLINGS)
@pytest.mark.parametrize("sides", [(50, 70), (20, 13)])
def test_policies_resize_as_training_without_them_does(rng, interpolation, sides):
    nothing = policies.Policy(0, lambda drawn, size: iter(()))
    change = policies.change([nothing], SIZE, interpolation)
    (top, left), (height, width) = rng.integers(0, 300, 2), sides
    image = tf.constant(load_sample_images().images[1][top : top + height, left : left + width])
    preprocessing = Preprocessing(interpolation=interpolation, rounding="none")
    assert policies.resizes(preprocessing)
    expected = tf_preprocess.resize(image, SIZE, preprocessing)
    difference = np.abs(change(image, tf.constant([0, 1])).numpy() - expected)
    assert difference.max() < (1.1 if interpolation == "bilinear" else 4)  # of 255
    assert 0 < np.quantile(difference, 0.99) < 1.1  # Pillow clips bicubic values along each axis
    rounds = dataclasses.replace(preprocessing, rounding="torchvision")
    difference = np.abs(
        change(image, tf.constant([0, 1])) - tf_preprocess.resize(image, SIZE, rounds)
    )
    assert (
        difference.max() <= 1 and np.quantile(difference, 0.99) == 0
    )  # sums in floats near a half


def test_erased_parts_are_as_published(rng):
    size, count = (60, 90), 2000
    top, left, height, width = drawn(lambda key: box(key, size), count).numpy().T
    share, ratio = height * width / (60 * 90), height / width
    assert (top >= 0).all() and (top + height <= 60).all() and (left + width <= 90).all()
    area = rng.uniform(0.02, 1 / 3, 20000) * 60 * 90
    sides = np.exp(rng.uniform(np.log(0.3), -np.log(0.3), 20000))
    high, wide = np.round(np.sqrt([area * sides, area / sides]))
    fits = (high < 60) & (wide < 90)
    quantiles = np.linspace(0.1, 0.9, 9)
    for actual, values in ((share, high * wide / (60 * 90)), (np.log(ratio), np.log(high / wide))):
        expected = np.quantile(values[fits], quantiles)
        np.testing.assert_allclose(np.quantile(actual, quantiles), expected, atol=0.1)
    assert np.mean(top[height < 40] / (60 - height[height < 40])) == pytest.approx(0.5, abs=0.02)
    image = tf.fill((60, 90, 3), 7.0)
    changed = drawn(lambda key: erase(image, key, 0.3), 300).numpy()
    noise = changed[changed != 7]
    assert (changed != 7).any((1, 2, 3)).mean() == pytest.approx(0.3, abs=0.08)
    assert noise.mean() == pytest.approx(0, abs=0.01) and noise.std() == pytest.approx(1, abs=0.01)
    erased = (changed != 7).all(axis=-1)
    for rows, columns in ((x.any(1), x.any(0)) for x in erased if x.any()):
        assert np.diff(np.flatnonzero(rows)).max(initial=1) == 1
        assert np.diff(np.flatnonzero(columns)).max(initial=1) == 1
    np.testing.assert_array_equal(
        erased.sum((1, 2)), [x.any(1).sum() * x.any(0).sum() for x in erased]
    )
