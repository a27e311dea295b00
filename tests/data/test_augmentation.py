"""Augmentation agrees with formulas and Keras, and is the same in parts and as a whole."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.helpers import assert_close
from vit_keras import data
from vit_keras.config import AugmentConfig
from vit_keras.data import from_arrays
from vit_keras.data.augment import Augmentation, draw_map, erase, mix, warp
from vit_keras.data.batches import PAIR, generator
from vit_keras.data.cropping import as_picture, random_window
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once
SIZE = (24, 20)
PIXELS = Preprocessing(mean=(0.0,), std=(1 / 255,))  # the model's input is the pixels


def drawn(function, count):
    return np.stack([function(generator(7, i)) for i in range(count)])


CHANGES = {
    "affine": {"rotation_degrees": 20, "scale": 0.3, "shift": 0.2},
    "inception and flip": {"crop": "inception", "flip": True},
    "bit": {"crop": "bit"},
    "pillow": {"randaugment_layers": 2, "mixup_alpha": 0.4, "cutmix_alpha": 1.0},
    "jitter and erasing": {"policy": "autoaugment", "color_jitter": 0.4, "erasing": 0.8},
    "balanced": {"crop": "bit"},
}


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(5)
    return from_arrays(rng.integers(0, 256, (10, 30, 26, 3), dtype="uint8"), np.arange(10) % 4)


def batches(split, config, batch=8, steps=(0, 3), shard=(0, 1), seed=3, balanced=False):
    options = {"image_size": SIZE, "preprocessing": Preprocessing(), "batch": batch, "seed": seed}
    options |= {"start_step": steps[0], "total_steps": steps[1], "num_classes": 4, "shard": shard}
    made = data.train_batches(split, augment_config=config, is_balanced=balanced, **options)
    return [np.concatenate(tensors) for tensors in zip(*made)]


@pytest.mark.parametrize("change", CHANGES)
def test_examples_are_the_same_resumed_in_parts_and_over_processes(split, change):
    config, balanced = AugmentConfig(**CHANGES[change]), change == "balanced"
    whole = batches(split, config, balanced=balanced)
    assert not balanced or whole[1].mean(axis=0).tolist() == [0.25] * 4  # of the ten, 3, 3, 2 and 2
    parts = batches(split, config, 4, (2, 6), balanced=balanced)  # from the second batch, in two
    for tensor, expected in zip(parts, whole):
        np.testing.assert_array_equal(tensor, expected[8:])
    second = batches(split, config, shard=(1, 2), balanced=balanced)
    for tensor, expected in zip(second, whole):
        rows = expected.reshape(3, 2, 4, *expected.shape[1:])[:, 1]
        np.testing.assert_array_equal(tensor, rows.reshape(tensor.shape))
    plain = batches(split, AugmentConfig())
    changed = np.abs(whole[0] - plain[0]).max(axis=(1, 2, 3)) > 0.05
    assert changed.mean() > 0.6  # RandAugment may draw what does nothing
    if change == "affine":
        assert not np.array_equal(whole[0], batches(split, config, seed=4)[0])


@pytest.mark.parametrize("channels", [1, 6])
def test_an_inception_crop_is_a_part_at_the_size_of_the_model(rng, channels):
    """Pillow resizes each channel of what NumPy cuts out."""
    pixels = rng.integers(0, 256, (30, 26, channels), dtype="uint8")
    augmentation = Augmentation(AugmentConfig(crop="inception"), SIZE, PIXELS)
    for i in range(5):
        actual, label = augmentation.example(as_picture(pixels), 7, generator(3, i))
        top, left, height, width = random_window((30, 26), generator(3, i))
        part = pixels[top : top + height, left : left + width]
        planes = [Image.fromarray(part[..., c]) for c in range(channels)]
        expected = [plane.resize(SIZE[::-1], Image.Resampling.BILINEAR) for plane in planes]
        np.testing.assert_array_equal(actual, np.stack(expected, axis=-1))
        assert label == 7


def test_erased_parts_are_as_published(rng):
    def box(rng):
        y, x = np.nonzero(erase(np.full((60, 90, 1), 7.0, "float32"), rng, 1.0)[..., 0] != 7)
        return y.min(), x.min(), np.ptp(y) + 1, np.ptp(x) + 1

    top, left, height, width = drawn(box, 2000).T
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
    image = lambda: np.full((60, 90, 3), 7.0, "float32")
    changed = drawn(lambda rng: erase(image(), rng, 0.3), 300)
    noise = changed[changed != 7]
    assert (changed != 7).any((1, 2, 3)).mean() == pytest.approx(0.3, abs=0.08)
    assert noise.mean() == pytest.approx(0, abs=0.01) and noise.std() == pytest.approx(1, abs=0.01)


def maps(size=21, **changes):
    """Draws 400 affine maps in coordinates around the center: `(400, 2, 2)` and `(400, 2)`."""
    made = drawn(lambda rng: draw_map(rng, (size, size), AugmentConfig(**changes)), 400)
    center = np.full(2, (size - 1) / 2)
    return made[..., :2], made[..., 2] + made[..., :2] @ center - center


def test_maps_turn_about_the_center_stretch_each_axis_and_shift_by_a_share_of_the_side():
    turns, shifts = maps(rotation_degrees=30)
    identity = np.broadcast_to(np.eye(2), turns.shape)
    np.testing.assert_allclose(turns @ turns.transpose(0, 2, 1), identity, atol=1e-4)
    np.testing.assert_allclose(shifts, 0, atol=1e-4)
    angles = np.degrees(np.arctan2(turns[:, 0, 1], turns[:, 0, 0]))
    assert 28 < np.abs(angles).max() <= 30.01 and abs(angles.mean()) < 3
    assert angles.std() == pytest.approx(30 / np.sqrt(3), rel=0.1)
    turns, _ = maps(scale=0.25)
    scales = np.stack([turns[:, 0, 0], turns[:, 1, 1]])
    np.testing.assert_allclose(turns[:, [0, 1], [1, 0]], 0, atol=1e-4)
    assert 1 / 1.251 < scales.min() < 0.82 and 1.22 < scales.max() < 1.251
    assert abs(np.corrcoef(scales)[0, 1]) < 0.15
    turns, shifts = maps(shift=0.2)
    np.testing.assert_allclose(turns, identity, atol=1e-4)
    assert 0.95 * 0.2 * 21 < np.abs(shifts).max() <= 0.2 * 21 + 1e-3
    assert abs(np.corrcoef(shifts.T)[0, 1]) < 0.15


@pytest.mark.parametrize("sides", [(17, 30), (40, 12)])
def test_maps_lead_from_the_result_to_bilinear_and_nearest_pixels(rng, sides):
    """A formula in NumPy: places beyond the edge are the nearest ones on it."""
    image = rng.normal(size=(*sides, 4)).astype("float32")
    mask = rng.integers(0, 256, sides, dtype="uint8")
    config = AugmentConfig(rotation_degrees=70, scale=0.8, shift=0.3)
    (y, x), last = np.mgrid[: sides[0], : sides[1]], np.array(sides) - 1
    for i in range(5):
        drawn_map = draw_map(generator(i), sides, config)
        places = np.stack([y, x, np.ones(sides)], axis=-1) @ drawn_map.T  # (H, W, 2)
        places = np.clip(places, 0, last)
        low = np.floor(places).astype(int)
        (top, left), (bottom, right) = np.moveaxis([low, np.minimum(low + 1, last)], -1, 1)
        down, across = np.moveaxis(places - low, -1, 0)[..., None]
        upper = (1 - across) * image[top, left] + across * image[top, right]
        lower = (1 - across) * image[bottom, left] + across * image[bottom, right]
        assert_close(warp(image, drawn_map), (1 - down) * upper + down * lower)
        rows, columns = np.moveaxis(np.floor(places + 0.5).astype(int), -1, 0)
        actual = warp(mask[..., None], drawn_map, order=0)[..., 0]
        np.testing.assert_array_equal(actual, mask[rows, columns], strict=True)


def mixed(count, size, config):
    """The share of the first picture in each pixel of it and of the target, after mixing."""
    first = np.tile(np.float32([1, 0]), count)[:, None, None, None]
    images = first * np.ones((*size, 1), "float32")
    targets = np.tile(np.eye(2, dtype="float32"), (count, 1))
    images, targets = mix((images, targets), (generator(1, PAIR, i) for i in range(count)), config)
    return images[::2], targets[::2, 0]


@pytest.mark.parametrize("alphas", [(0.4, 0.0), (0.0, 1.0), (0.4, 1.0)])
def test_neighbors_are_mixed_as_by_keras(rng, alphas):
    config, size = AugmentConfig(mixup_alpha=alphas[0], cutmix_alpha=alphas[1]), (64, 20)
    pictures = rng.normal(size=(8, *size, 3)).astype("float32")
    labels = np.eye(4, dtype="float32")[rng.integers(0, 4, 8)]
    shares = np.repeat(mixed(4, size, config)[0], 2, axis=0)
    cut = np.isin(shares, (0, 1))
    weights = np.where(cut, 1, shares).min(axis=(1, 2, 3))  # 1 for what is cut
    generators = [generator(1, PAIR, i) for i in range(4)]
    images, targets = mix((pictures.copy(), labels.copy()), generators, config)
    inside = cut & (shares == 0)
    kept = 1 - inside.mean(axis=(1, 2, 3), dtype="float32")
    changes = [{"mix_weight": weights}, {"batch_masks": inside, "mix_weight": kept}]
    for layer, change in zip((keras.layers.MixUp(), keras.layers.CutMix()), changes):
        layer.backend.set_backend("tensorflow")
        change["permutation_order"] = tf.range(8) ^ 1
        pictures = layer.transform_images(tf.constant(pictures), change)
        labels = layer.transform_labels(tf.constant(labels), change)
    np.testing.assert_array_equal(images, pictures)
    assert_close(targets, labels, rtol=1e-6)


def test_weights_of_mixing_are_beta(rng):
    size = (80, 40)
    shares, kept = mixed(2000, size, AugmentConfig(mixup_alpha=0.4, cutmix_alpha=2.0))
    np.testing.assert_allclose(kept, shares.mean(axis=(1, 2, 3)), atol=1e-5)
    cut = np.isin(shares, (0, 1)).all(axis=(1, 2, 3))
    assert cut.mean() == pytest.approx(0.5, abs=0.05)
    quantiles = np.linspace(0.1, 0.9, 9)
    expected = np.quantile(rng.beta(0.4, 0.4, 100000), quantiles)
    np.testing.assert_allclose(np.quantile(kept[~cut], quantiles), expected, atol=0.08)
    area = rng.beta(2, 2, 20000)
    sides = [np.floor(side * np.sqrt(area)) for side in size]
    center = np.floor(rng.uniform(size=(20000, 2)) * size).T
    part = lambda c, w, side: np.clip(c + w / 2, 0, side) - np.clip(c - w / 2, 0, side)
    high, wide = map(part, center, sides, size)
    assert (1 - kept[cut]).mean() == pytest.approx((high * wide).mean() / 3200, abs=0.03)
