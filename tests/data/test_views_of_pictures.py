"""The views of self-distillation: colors as formulas in NumPy say, and batches that repeat."""

import colorsys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import assert_close
from vit_keras import data
from vit_keras.config import AugmentConfig, DinoConfig
from vit_keras.data import colors, from_arrays, tf_preprocess
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once
SIZE, NUMERICS = (12, 8), Preprocessing(mean=(0.4,), std=(0.3,))
LUMA = np.array([0.299, 0.587, 0.114])
SMALL = DinoConfig(3, 4, blur_sigma=0.7)


def image_of(rng, channels=3):
    return rng.uniform(0, 255, (9, 7, channels)).astype("float32")


def keys(count):
    return [tf.constant([5, i], tf.int64) for i in range(count)]


@pytest.mark.parametrize("channels", [1, 3])
def test_jitter_is_a_formula_of_four_draws(rng, channels):
    """Each order of the changes gives another image; one of them must be the result."""
    image, changed = image_of(rng, channels), 0
    for key in keys(12):
        result = colors.jitter(tf.constant(image), key, 0.8).numpy()
        split = tf.random.split(key, 3)
        drawn = tf.random.stateless_uniform((4,), split[0], -1, 1) * 0.8 * [0.4, 0.4, 0.2, 0.1]
        count = 4 if channels == 3 else 2
        order = np.argsort(tf.random.stateless_uniform((count,), split[1]).numpy())
        if tf.random.stateless_uniform((), split[2]) >= 0.8:
            np.testing.assert_array_equal(result, image)
            continue
        expected, changed = image.astype("float64"), changed + 1
        for place in order:
            expected = np.clip(jittered(expected, place, float(drawn[place])), 0, 255)
        np.testing.assert_allclose(result, expected, atol=0.02)
    assert 6 <= changed < 12


def jittered(x, place, amount):
    luma = x if x.shape[-1] == 1 else (x * LUMA).sum(-1, keepdims=True)
    if place == 3:
        turned = [[turn(pixel, amount) for pixel in row] for row in x / 255]
        return 255 * np.array(turned)
    other = (0.0, luma.mean(), luma)[place]
    return (1 + amount) * x - amount * other


def turn(pixel, amount):
    hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
    return colorsys.hsv_to_rgb((hue + amount) % 1, saturation, value)


def test_blur_is_a_gaussian_with_repeated_edges(rng):
    image, key = image_of(rng), keys(1)[0]
    result = colors.blur(tf.constant(image), key, 1.0, 2.0).numpy()
    sigma = float(tf.random.stateless_uniform((), tf.random.split(key, 2)[0], 0.1, 2.0))
    weights = np.exp(-(np.arange(-6, 7) ** 2) / (2 * sigma**2))
    expected = np.pad(image.astype("float64"), ((6, 6), (6, 6), (0, 0)), mode="edge")
    for axis in (0, 1):
        smooth = lambda line: np.convolve(line, weights / weights.sum(), mode="valid")
        expected = np.apply_along_axis(smooth, axis, expected)
    assert sigma > 0.3 and np.abs(result - image).max() > 5
    assert_close(result, expected)
    assert colors.blur(image, key, 1.0, 0.0) is image


def test_colors_are_taken_and_bright_pixels_inverted_at_their_rates(rng):
    image = tf.constant(image_of(rng))
    luma = np.broadcast_to((image.numpy() * LUMA).sum(-1, keepdims=True), image.shape)
    inverted = np.where(image.numpy() < 128, image, 255 - image)
    for change, expected in ((colors.grayscale, luma), (colors.solarize, inverted)):
        results = [change(image, key, 0.3).numpy() for key in keys(60)]
        rates = [np.abs(result - expected).max() < 1e-3 for result in results]
        assert 9 <= sum(rates) <= 27
        for result, is_changed in zip(results, rates):
            assert is_changed or np.array_equal(result, image)
    gray = tf.constant(image_of(rng, 1))
    assert colors.grayscale(gray, keys(1)[0], 1.0) is gray


def test_windows_have_the_areas_and_the_sides_that_are_allowed():
    shape = tf.constant([100, 140, 3])
    windows = [tf_preprocess.random_window(shape, key, (0.05, 0.4)).numpy() for key in keys(50)]
    tops, lefts, heights, widths = np.transpose(windows)
    areas, ratios = heights * widths / 14_000, widths / heights
    assert areas.min() > 0.04 and areas.max() < 0.41 and np.ptp(areas) > 0.2
    assert ratios.min() > 0.72 and ratios.max() < 1.37 and np.ptp(ratios) > 0.3
    assert (tops + heights <= 100).all() and (lefts + widths <= 140).all()


def test_without_changes_of_color_a_view_is_a_resized_part(rng):
    image, key = image_of(rng), keys(1)[0]
    config = DinoConfig(2, 4, (0.5, 0.9), (0.2, 0.4), 0.0, 0.0, 0.0, 0.0)
    whole, local = data.Views(config, SIZE, NUMERICS).draw(tf.constant(image), key)
    assert whole.shape == (2, *SIZE, 3) and local.shape == (2, 4, 4, 3)
    drawn = tf.random.split(key, 4)
    for i, view in enumerate([*whole, *local]):
        window = tf.random.split(drawn[i], 6)[0]
        scale = (0.5, 0.9) if i < 2 else (0.2, 0.4)
        top, left, height, width = tf_preprocess.random_window((9, 7, 3), window, scale)
        part = image[top : top + height, left : left + width]
        part = tf.image.resize(part, view.shape[:2], "bicubic", antialias=True)
        expected = (np.clip(part, 0, 255) / 255 - 0.4) / 0.3
        assert_close(view, expected)


@pytest.fixture
def split(rng):
    return from_arrays(rng.integers(0, 256, (10, 9, 9, 3), dtype="uint8"), np.arange(10) % 2)


def batches(split, batch, start=0, shard=(0, 1)):
    made = data.train_batches(
        split,
        image_size=SIZE,
        preprocessing=NUMERICS,
        batch=batch,
        augment_config=AugmentConfig(),
        seed=3,
        start_step=start,
        total_steps=12 // batch,
        num_classes=2,
        shard=shard,
        masking=data.Views(SMALL, SIZE, NUMERICS, flip=True),
    )
    return list(made.as_numpy_iterator())


def joined(made):
    """Joins the global views, the local views, and the targets of all batches."""
    leaves = [keras.tree.flatten(batch) for batch in made]
    return [np.concatenate(part) for part in zip(*leaves)]


def test_views_of_a_run_depend_on_nothing_but_the_number_of_the_example(split):
    whole = joined(batches(split, 6))
    assert [part.shape for part in whole] == [(12, 2, 12, 8, 3), (12, 3, 4, 4, 3), (12, 2)]
    views = whole[1].reshape(36, -1)
    assert len(np.unique(views, axis=0)) == 36
    for part in (batches(split, 2), [*batches(split, 6)[:1], *batches(split, 6, start=1)]):
        for one, other in zip(whole, joined(part)):
            np.testing.assert_array_equal(one, other)
    halves = [batches(split, 6, shard=(r, 2)) for r in (0, 1)]
    for one, other in zip(whole, joined([b for pair in zip(*halves) for b in pair])):
        np.testing.assert_array_equal(one, other)


def test_held_out_views_stay_and_padding_weighs_nothing(split):
    options = {"image_size": SIZE, "preprocessing": NUMERICS, "batch": 4}
    options["masking"] = data.Views(SMALL, SIZE, NUMERICS)
    one, again = (joined(data.eval_batches(split, **options).as_numpy_iterator()) for _ in "ab")
    padded = data.eval_batches(split, **options, num_classes=2, pad=True)
    padded = joined(padded.as_numpy_iterator())
    for part, same, longer in zip(one, again, padded):
        np.testing.assert_array_equal(part, same)
        np.testing.assert_array_equal(part, longer[:10])
    assert_close(padded[3], [1.2] * 10 + [0, 0], rtol=1e-6)
