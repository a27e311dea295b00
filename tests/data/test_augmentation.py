"""Crops and RandAugment agree with formulas, and batches are the same in parts and as a whole."""

import numpy as np
import pytest
from PIL import Image

from tests.data.drawing import drawn
from vit_keras import data
from vit_keras.config import AugmentConfig
from vit_keras.data import from_arrays
from vit_keras.data.augment import Augmentation, box, erase
from vit_keras.data.batches import generator
from vit_keras.data.transforms import as_picture, random_window
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


def test_erased_parts_are_as_published(rng):
    size, count = (60, 90), 2000
    top, left, height, width = drawn(lambda rng: box(rng, size), count).T
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
    erased = (changed != 7).all(axis=-1)
    for rows, columns in ((x.any(1), x.any(0)) for x in erased if x.any()):
        assert np.diff(np.flatnonzero(rows)).max(initial=1) == 1
        assert np.diff(np.flatnonzero(columns)).max(initial=1) == 1
    np.testing.assert_array_equal(
        erased.sum((1, 2)), [x.any(1).sum() * x.any(0).sum() for x in erased]
    )
