"""Crops and RandAugment agree with formulas, and batches are the same in parts and as a whole."""

import collections

import numpy as np
import pytest
from PIL import Image

from tests.data.drawing import drawn
from vit_keras import data
from vit_keras.config import AugmentConfig
from vit_keras.data import from_arrays
from vit_keras.data.augment import Augmentation
from vit_keras.data.batches import generator
from vit_keras.data.transforms import as_picture, bit_crop, random_window
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once

SIZE = (24, 20)
CHANGES = {
    "affine": {"rotation_degrees": 20, "scale": 0.3, "shift": 0.2},
    "inception and flip": {"crop": "inception", "flip": True},
    "bit": {"crop": "bit"},
    "pillow": {"randaugment_layers": 2, "mixup_alpha": 0.4, "cutmix_alpha": 1.0},
    "jitter and erasing": {"policy": "trivialaugment", "color_jitter": 0.4, "erasing": 0.8},
    "keras_cv": {"randaugment_layers": 2, "library": "keras_cv"},
}


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(5)
    return from_arrays(rng.integers(0, 256, (10, 30, 26, 3), dtype="uint8"), np.arange(10) % 4)


def batches(split, config, batch=8, steps=(0, 3), shard=(0, 1), seed=3):
    made = data.train_batches(
        split,
        image_size=SIZE,
        preprocessing=Preprocessing(),
        batch=batch,
        augment_config=config,
        seed=seed,
        start_step=steps[0],
        total_steps=steps[1],
        num_classes=4,
        shard=shard,
    )
    return [np.concatenate(tensors) for tensors in zip(*made)]


@pytest.mark.parametrize("change", CHANGES)
def test_examples_are_the_same_resumed_in_parts_and_over_processes(split, change):
    config = AugmentConfig(**CHANGES[change])
    whole = batches(split, config)
    parts = batches(split, config, batch=4, steps=(2, 6))  # from the second batch, in two parts
    for tensor, expected in zip(parts, whole):
        np.testing.assert_array_equal(tensor, expected[8:])
    second = batches(split, config, shard=(1, 2))
    for tensor, expected in zip(second, whole):
        rows = expected.reshape(3, 2, 4, *expected.shape[1:])[:, 1]
        np.testing.assert_array_equal(tensor, rows.reshape(tensor.shape))
    plain = batches(split, AugmentConfig())
    changed = np.abs(whole[0] - plain[0]).max(axis=(1, 2, 3)) > 0.05
    assert changed.mean() > 0.6  # RandAugment may draw what does nothing
    if change == "affine":
        assert not np.array_equal(whole[0], batches(split, config, seed=4)[0])


@pytest.fixture(scope="module")
def windows():
    """Five thousand inception crops of 300x400 pixels, `(N, 4)`."""
    return drawn(lambda rng: random_window((300, 400), rng), 5000)


def test_inception_crops_are_spread_as_published(windows):
    top, left, height, width = windows.T
    assert (top >= 0).all() and (left >= 0).all()
    assert (top + height <= 300).all() and (left + width <= 400).all()
    area, ratio = height * width / (300 * 400), width / height
    assert 0.048 < area.min() < 0.07 and 0.9 < area.max() <= 1
    assert 0.74 < ratio.min() < 0.78 and 1.29 < ratio.max() < 1.35
    # Plain formulas: the ratio is uniform, and then the height is uniform within the range of
    # areas; both are drawn again if the crop does not fit.
    rng, accepted = np.random.default_rng(0), []
    while len(accepted) < 20000:
        r = rng.uniform(0.75, 1.33)
        low, high = np.sqrt(0.05 * 120000 / r), min(np.sqrt(120000 / r), 300, 400 / r)
        h = rng.uniform(low, high)
        accepted.append((h * h * r / 120000, r))
    for actual, expected in zip((area, ratio), np.transpose(accepted)):
        quantiles = np.linspace(0.1, 0.9, 9)
        difference = np.quantile(actual, quantiles) - np.quantile(expected, quantiles)
        assert np.abs(difference).max() < 0.04
    free = 300 - height
    assert np.mean(top[free > 20] / free[free > 20]) == pytest.approx(0.5, abs=0.02)


def test_windows_have_the_areas_that_are_allowed():
    top, left, height, width = drawn(lambda rng: random_window((100, 140), rng, (0.05, 0.4)), 300).T
    areas, ratios = height * width / 14_000, width / height
    assert areas.min() >= 0.05 and areas.max() <= 0.4 and np.ptp(areas) > 0.3
    assert ratios.min() > 0.72 and ratios.max() < 1.37 and np.ptp(ratios) > 0.5
    assert (top + height <= 100).all() and (left + width <= 140).all()


@pytest.mark.parametrize("channels", [1, 3, 6])
def test_an_inception_crop_is_a_part_at_the_size_of_the_model(rng, channels):
    """Pillow resizes each channel of what NumPy cuts out."""
    pixels = rng.integers(0, 256, (30, 26, channels), dtype="uint8")
    augmentation = Augmentation(AugmentConfig(crop="inception"), SIZE, Preprocessing())
    for i in range(5):
        actual, label = augmentation.example(as_picture(pixels), 7, generator(3, i))
        top, left, height, width = random_window((30, 26), generator(3, i))
        part = pixels[top : top + height, left : left + width]
        expected = [
            np.asarray(Image.fromarray(part[..., c]).resize(SIZE[::-1], Image.Resampling.BILINEAR))
            for c in range(channels)
        ]
        np.testing.assert_array_equal(actual, np.stack(expected, axis=-1))
        assert label == 7


@pytest.mark.parametrize(("side", "larger"), [(95, (30, 25)), (97, (26, 21))])
def test_bit_crops_lie_anywhere_in_a_larger_picture(side, larger):
    """160/128 of 24x20 is 30x25, and 512/480 is 26x21."""
    free = np.array(larger) - SIZE + 1
    crops = [bit_crop((side, side), SIZE, generator(1, i)) for i in range(3000)]
    assert {resized for resized, _ in crops} == {larger}
    assert {window[2:] for _, window in crops} == {SIZE}
    seen = collections.Counter(window[:2] for _, window in crops)
    assert set(seen) == {(top, left) for top in range(free[0]) for left in range(free[1])}
    share = 1 / free.prod()
    counts = list(seen.values())
    np.testing.assert_allclose(counts, 3000 * share, atol=5 * np.sqrt(3000 * share * (1 - share)))


def test_half_of_the_images_are_mirrored_with_their_masks(rng):
    pixels = rng.integers(0, 256, (*SIZE, 3), dtype="uint8")
    mask = rng.integers(0, 5, SIZE, dtype="uint8")
    augmentation = Augmentation(AugmentConfig(flip=True), SIZE, Preprocessing())
    mirrored = 0
    for i in range(200):
        actual, changed = augmentation.example(as_picture(pixels), mask, generator(2, i))
        step = -1 if not np.array_equal(actual, pixels) else 1
        np.testing.assert_array_equal(actual, pixels[:, ::step])
        np.testing.assert_array_equal(changed, mask[:, ::step])
        mirrored += step == -1
    assert 70 < mirrored < 130
