"""MixUp and CutMix follow the papers, and give the bits of Keras' layers."""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import assert_close
from vit_keras.config import AugmentConfig
from vit_keras.data.augment import Mixing
from vit_keras.data.batches import PAIR, generator
from vit_keras.data.policies import keras_cv

pytestmark = pytest.mark.nightly_on("jax")  # beside TensorFlow, torch shows what Keras' layers do

SIZE = (64, 20)


@pytest.mark.parametrize("alphas", [(0.4, 0.0), (0.0, 1.0), (0.4, 1.0)])
def test_neighbors_are_mixed_as_published(rng, alphas):
    mixing = Mixing(SIZE, AugmentConfig(mixup_alpha=alphas[0], cutmix_alpha=alphas[1]))
    pictures = rng.normal(size=(8, *SIZE, 3)).astype("float32")
    labels = np.eye(4, dtype="float32")[rng.integers(0, 4, 8)]
    generators = lambda: [generator(1, PAIR, i) for i in range(4)]
    drawn = [mixing.draw(rng) for rng in generators()]
    weights, boxes = (np.repeat(part, 2, axis=0) for part in zip(*drawn))
    images, targets = mixing(pictures.copy(), labels, generators())
    for i in range(8):
        lam, (top, left, bottom, right) = weights[i], boxes[i]
        expected = lam * pictures[i] + (1 - lam) * pictures[i ^ 1]
        partner = lam * pictures[i ^ 1] + (1 - lam) * pictures[i]
        expected[top:bottom, left:right] = partner[top:bottom, left:right]
        kept = 1 - (bottom - top) * (right - left) / (SIZE[0] * SIZE[1])
        label = lam * labels[i] + (1 - lam) * labels[i ^ 1]
        other = lam * labels[i ^ 1] + (1 - lam) * labels[i]
        assert_close(images[i], expected, rtol=2e-6)
        assert_close(targets[i], kept * label + (1 - kept) * other)
        assert lam == 1 or kept == 1  # one of the two
    layers, order = (keras.layers.MixUp(), keras.layers.CutMix()), tf.range(8) ^ 1
    inside = np.zeros((8, *SIZE, 1), bool)
    for mask, (top, left, bottom, right) in zip(inside, boxes):
        mask[top:bottom, left:right] = True
    kept = 1 - inside.mean(axis=(1, 2, 3), dtype="float32")
    changes = [{"mix_weight": weights}, {"batch_masks": inside, "mix_weight": kept}]
    for layer, mix in zip(layers, changes):
        layer.backend.set_backend("tensorflow")
        mix["permutation_order"] = order
        pictures = layer.transform_images(tf.constant(pictures), mix)
        labels = layer.transform_labels(tf.constant(labels), mix)
    np.testing.assert_array_equal(images, pictures)
    assert_close(targets, labels, rtol=1e-6)


def test_weights_of_mixing_are_beta(rng):
    both = Mixing((200, 100), AugmentConfig(mixup_alpha=0.4, cutmix_alpha=2.0))
    weights, boxes = map(np.stack, zip(*(both.draw(generator(7, i)) for i in range(10000))))
    mixed = weights < 1
    assert mixed.mean() == pytest.approx(0.5, abs=0.02)
    quantiles = np.linspace(0.1, 0.9, 9)
    expected = np.quantile(rng.beta(0.4, 0.4, 100000), quantiles)
    np.testing.assert_allclose(np.quantile(weights[mixed], quantiles), expected, atol=0.05)
    sides = boxes[~mixed, 2:] - boxes[~mixed, :2]
    inner = ((boxes[~mixed, :2] > 0) & (boxes[~mixed, 2:] < (200, 100))).all(axis=1)
    np.testing.assert_allclose(sides[inner][:, 0] / sides[inner][:, 1], 2, rtol=0.2, atol=0.3)
    areas, cut = sides.prod(axis=1) / 20000, rng.beta(2, 2, 20000)
    high, wide = np.floor(200 * np.sqrt(cut)), np.floor(100 * np.sqrt(cut))
    center = np.floor(rng.uniform(size=(20000, 2)) * (200, 100))
    part = lambda c, w, side: np.clip(c + w / 2, 0, side) - np.clip(c - w / 2, 0, side)
    by_formula = part(center[:, 0], high, 200) * part(center[:, 1], wide, 100) / 20000
    assert areas.mean() == pytest.approx(by_formula.mean(), abs=0.02)


def test_images_are_the_same_in_any_order_and_thread(rng):
    image = rng.uniform(0, 255, (16, 12, 3)).astype("float32")
    one, other = (keras_cv(1, 15) for _ in range(2))
    expected = [one(image, generator(5, i)) for i in range(40)]
    with ThreadPoolExecutor(4) as threads:  # which all wait for the first trace
        actual = list(threads.map(lambda i: other(image, generator(5, i)), range(40)))
    np.testing.assert_array_equal(actual, expected)
    assert np.min(actual) >= 0 and np.max(actual) <= 255
    assert len({x.tobytes() for x in actual}) > 20
    assert actual[0].dtype == np.float32
    actual[0] += 1  # it may be changed
