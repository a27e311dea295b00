"""Pictures are resized and cropped as by Pillow, torchvision, transformers and TensorFlow."""

import numpy as np
import pytest
from PIL import Image

from tests.helpers import assert_close
from tests.peers import peer
from vit_keras import data
from vit_keras.data.dataset import Split
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once
transforms = peer("torchvision.transforms")
METHODS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
# Up, down, across, and by a half, where many weighted sums lie between two levels.
SIZES = [(24, 32), (57, 40), (131, 200), (64, 80), (1, 5), (301, 47), (40, 32)]
TOGETHER = 25  # pictures of random sizes that are evaluated with one model
# Groups of pictures: 300 in all, or 10,000.
GROUPS = pytest.mark.parametrize("groups", [3, pytest.param(100, marks=pytest.mark.nightly)])
INTERPOLATION = pytest.mark.parametrize("interpolation", METHODS)


def random_sides(rng, largest):
    """A height and width, of which small ones are as likely as large ones."""
    return tuple(np.exp(rng.uniform(0, np.log(largest + 0.5), 2)).round().astype(int).tolist())


def noise(rng, sides, channels):
    return rng.integers(0, 256, (*sides, channels), dtype="uint8")


def picture_of(pixels):
    return Image.fromarray(pixels if pixels.shape[-1] == 3 else pixels[..., 0])


def evaluated(pictures, size, **options):
    """The pixels that a model of a size sees of each picture, `(N, height, width, C)`."""
    levels = Preprocessing(mean=(0.0,), std=(1 / 255,), **options)  # the model's input is pixels
    split = Split(np.zeros(len(pictures), int), pictures.__getitem__)
    made = data.eval_batches(split, image_size=size, preprocessing=levels, batch=8)
    images = np.concatenate([images for images, _ in made])
    assert np.abs(images - images.round()).max() < 1e-3
    return images.round()


@GROUPS
@INTERPOLATION
@pytest.mark.parametrize("channels", [1, 3])
def test_evaluation_has_the_bits_of_pillow(groups, interpolation, channels):
    rng = np.random.default_rng([groups, channels])
    for _ in range(groups):
        pictures = [noise(rng, random_sides(rng, 400), channels) for _ in range(TOGETHER)]
        size = random_sides(rng, 300)
        expected = [
            np.asarray(picture_of(pixels).resize(size[::-1], METHODS[interpolation]))
            for pixels in pictures
        ]
        actual = evaluated(pictures, size, interpolation=interpolation)
        np.testing.assert_array_equal(actual, np.reshape(expected, actual.shape))


@GROUPS
@INTERPOLATION
@pytest.mark.parametrize("channels", [1, 3])
def test_evaluation_has_the_bits_of_torchvision(groups, interpolation, channels):
    rng = np.random.default_rng([groups, channels])
    for _ in range(groups):
        pictures = [noise(rng, random_sides(rng, 400), channels) for _ in range(TOGETHER)]
        side, fraction = int(rng.integers(1, 200)), float(rng.choice([1.0, 0.95, 0.9, 0.875, 0.5]))
        method = transforms.InterpolationMode(interpolation)
        theirs = transforms.Compose(
            [transforms.Resize(int(side / fraction), method), transforms.CenterCrop(side)]
        )
        pictures = [  # a long strip would be resized to gigabytes
            pixels for pixels in pictures if max(pixels.shape) < 40 * min(pixels.shape[:2])
        ]
        expected = [np.asarray(theirs(picture_of(pixels))) for pixels in pictures]
        options = {"interpolation": interpolation, "crop_fraction": fraction}
        actual = evaluated(pictures, (side, side), **options)
        np.testing.assert_array_equal(actual, np.reshape(expected, actual.shape))


@INTERPOLATION
def test_levels_that_are_not_rounded_are_pillows_of_floats(rng, interpolation):
    options = Preprocessing(interpolation=interpolation, rounding="none")
    for sides in SIZES:
        pixels = noise(rng, sides, 3)
        channels = [
            Image.fromarray(pixels[..., c].astype("float32")).resize(
                (40, 32), METHODS[interpolation]
            )
            for c in range(3)
        ]
        expected = np.clip(np.stack([*map(np.asarray, channels)], axis=-1), 0, 255)
        assert_close(data.resize(pixels, (32, 40), options), expected)


@INTERPOLATION
@pytest.mark.parametrize("antialias", [False, True])
def test_levels_that_are_not_rounded_are_tensorflows(rng, interpolation, antialias):
    import tensorflow as tf

    options = Preprocessing(interpolation=interpolation, antialias=antialias, rounding="none")
    # TensorFlow takes the weights of bicubic interpolation from a table of 1,024 places.
    rtol = 8e-4 if (interpolation, antialias) == ("bicubic", False) else 4e-6
    for sides in SIZES:
        for pixels in (noise(rng, sides, 3), rng.uniform(0, 255, (*sides, 2)).astype("float32")):
            theirs = tf.image.resize(pixels, (32, 40), interpolation, antialias=antialias).numpy()
            least, most = (0, 255) if pixels.dtype == np.uint8 else (pixels.min(), pixels.max())
            actual = data.resize(pixels, (32, 40), options)
            assert_close(actual, np.clip(theirs, least, most), rtol=rtol)


def keys_cubic(x):
    """The kernel of Keys (1981) with a = -1/2."""
    near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


@pytest.mark.parametrize(
    ("interpolation", "kernel"),
    [("bilinear", lambda x: np.maximum(1 - x, 0)), ("bicubic", keys_cubic)],
)
def test_without_antialiasing_the_nearest_pixels_count(rng, interpolation, kernel):
    """A matrix of weights for each axis, in float64."""

    def matrix(old, new):
        centers = (np.arange(new) + 0.5) * old / new - 0.5
        weights = kernel(np.abs(centers[:, None] - np.arange(old)))
        return weights / weights.sum(axis=1, keepdims=True)

    options = Preprocessing(interpolation=interpolation, antialias=False, rounding="none")
    for sides in SIZES:
        pixels = noise(rng, sides, 3)
        rows, columns = matrix(sides[0], 32), matrix(sides[1], 40)
        expected = np.einsum("hH,wW,HWc->hwc", rows, columns, pixels.astype(float), optimize=True)
        actual = data.resize(pixels, (32, 40), options)
        assert_close(actual, np.clip(expected, 0, 255), rtol=1e-6)


@pytest.mark.parametrize("rounding", ["none", "torchvision"])
@pytest.mark.parametrize("crop_fraction", [None, 0.9])
def test_batches_are_resized_image_by_image(rng, crop_fraction, rounding):
    options = Preprocessing(crop_fraction=crop_fraction, rounding=rounding)
    pixels = noise(rng, (2, 3, 20, 30), 1)
    resized = data.resize(pixels, (16, 8), options)
    assert resized.dtype == np.float32
    for image, expected in zip(pixels.reshape(6, 20, 30, 1), resized.reshape(6, 16, 8, 1)):
        np.testing.assert_array_equal(data.resize(image, (16, 8), options), expected)
    assert data.resize(pixels[:0], (16, 8), options).shape == (0, 3, 16, 8, 1)
    same = data.resize(pixels, (20, 30), Preprocessing())
    np.testing.assert_array_equal(same, pixels)


@pytest.mark.parametrize("rounding", ["none", "torchvision", "transformers"])
def test_masks_keep_their_classes(rng, rounding):
    classes = rng.choice([0, 3, 200], (30, 47, 1)).astype("uint8")
    options = Preprocessing(interpolation="nearest", antialias=False, rounding=rounding)
    expected = picture_of(classes).resize((17, 16), Image.Resampling.NEAREST)
    resized = data.resize(classes, (16, 17), options)
    np.testing.assert_array_equal(resized[..., 0], np.asarray(expected))


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
    expected = pixels[:, left : left + 8]
    np.testing.assert_array_equal(data.resize(pixels, (8, 8), options), expected)
