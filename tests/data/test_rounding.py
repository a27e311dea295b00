"""What a resize rounds to whole numbers, as Pillow, torchvision and transformers do."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from vit_keras import data
from vit_keras.data import tf_preprocess
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once
PIL_METHODS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
# Up, down, across, and by a half, where many weighted sums lie between two levels.
SIZES = [(24, 32), (57, 40), (131, 200), (64, 80), (1, 5), (301, 47)]


@pytest.mark.parametrize("interpolation", PIL_METHODS)
@pytest.mark.parametrize("channels", [1, 3])
def test_levels_have_the_bits_of_pillows(rng, interpolation, channels):
    options = Preprocessing(interpolation=interpolation, rounding="torchvision")
    method = PIL_METHODS[interpolation]
    for height, width in SIZES:
        pixels = rng.integers(0, 256, (height, width, channels), dtype="uint8")
        picture = Image.fromarray(pixels if channels == 3 else pixels[..., 0])
        columns = picture.resize((40, height), method)  # alone, as Pillow 13 chooses the order
        expected = np.asarray(columns.resize((40, 32), method)).reshape(32, 40, channels)
        resized = data.resize(pixels, (32, 40), options)
        assert resized.dtype == np.float32
        np.testing.assert_array_equal(resized, expected)


@pytest.mark.parametrize("rounding", ["torchvision", "transformers"])
@pytest.mark.parametrize("crop_fraction", [None, 0.9])
@pytest.mark.parametrize("interpolation", PIL_METHODS)
def test_tensorflow_rounds_alike(rng, interpolation, crop_fraction, rounding):
    options = Preprocessing(
        interpolation=interpolation, crop_fraction=crop_fraction, rounding=rounding
    )
    for height, width in SIZES:
        pixels = rng.integers(0, 256, (height, width, 3), dtype="uint8")
        expected = tf_preprocess.resize(pixels, (32, 40), options).numpy()
        difference = np.abs(data.resize(pixels, (32, 40), options) - expected)
        assert difference.max() <= 1 and (difference > 0).mean() < 0.08  # sums halfway


def test_masks_keep_their_classes(rng):
    classes = rng.choice([0, 3, 200], (30, 47, 1)).astype("uint8")
    options = Preprocessing(interpolation="nearest", antialias=False, crop_fraction=0.9)
    rounded = dataclasses.replace(options, rounding="torchvision")
    assert set(np.unique(tf_preprocess.resize(classes, (16, 16), rounded))) <= {0.0, 3.0, 200.0}


def published_crop(sides, side, fraction, rounding):
    """The sides before the crop and the corner by the formulas in the projects' code."""
    short = int(side / fraction)
    scaled = [short if edge == min(sides) else int(short * edge / min(sides)) for edge in sides]
    if rounding == "torchvision":
        return scaled, [round((edge - side) / 2.0) for edge in scaled]
    return scaled, [(edge - side) // 2 for edge in scaled]


@pytest.mark.parametrize("rounding", ["torchvision", "transformers"])
@pytest.mark.parametrize(("side", "fraction"), [(224, 0.9), (224, 0.875), (240, 0.95), (336, 1.0)])
def test_crops_are_those_of_the_projects(rng, side, fraction, rounding):
    options = Preprocessing(crop_fraction=fraction, rounding=rounding)
    for sides in [(480, 640), *rng.integers(side // 2, 2000, (50, 2)).tolist()]:
        scaled, corner = published_crop(sides, side, fraction, rounding)
        seen = data.seen_part(sides, (side, side), options)
        expected = [c / s for c, s in zip(corner, scaled)] + [side / s for s in scaled]
        np.testing.assert_allclose(seen, expected, rtol=1e-12)


@pytest.mark.parametrize("rounding", ["torchvision", "transformers"])
def test_an_odd_rest_is_cut_at_either_side(rounding):
    """A picture of 11 columns before a crop of 8 loses 2 to the left, or 1."""
    pixels = np.arange(0, 88, 8, dtype="uint8").reshape(1, 11, 1) + np.zeros((8, 1, 1), "uint8")
    options = Preprocessing(crop_fraction=1.0, rounding=rounding)
    left = {"torchvision": 2, "transformers": 1}[rounding]
    for resize in (data.resize, tf_preprocess.resize):
        np.testing.assert_array_equal(resize(pixels, (8, 8), options), pixels[:, left : left + 8])


def test_an_unknown_rounding_is_named():
    with pytest.raises(ValueError, match=r"`rounding` must be one of 'none', .*Received: 'timm'"):
        Preprocessing(rounding="timm")
