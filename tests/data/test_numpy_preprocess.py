"""Resizing with NumPy agrees with TensorFlow's, which training uses."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from vit_keras import data
from vit_keras.data import tf_images, tf_preprocess
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once

SIZES = [(24, 32), (57, 40), (200, 131), (1, 5)]


@pytest.mark.parametrize("crop_fraction", [None, 0.875])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_pixels_are_tensorflows(rng, interpolation, antialias, crop_fraction):
    options = Preprocessing(
        interpolation=interpolation,
        antialias=antialias,
        crop_fraction=crop_fraction,
        rounding="none",
    )
    for height, width in SIZES:
        pixels = rng.integers(0, 256, (height, width, 3), dtype="uint8")  # noise: the worst case
        expected = tf_preprocess.resize(pixels, (32, 40), options).numpy()
        resized = data.resize(pixels, (32, 40), options)
        assert resized.dtype == np.float32 and resized.shape == (32, 40, 3)
        np.testing.assert_allclose(resized, expected, atol=0.2)


def test_batches_are_resized_image_by_image(rng):
    pixels = rng.integers(0, 256, (3, 20, 30, 1), dtype="uint8")
    resized = data.resize(pixels, (16, 8), Preprocessing())
    for image, expected in zip(pixels, resized, strict=True):
        np.testing.assert_array_equal(data.resize(image, (16, 8), Preprocessing()), expected)
    same = data.resize(pixels, (20, 30), Preprocessing())
    np.testing.assert_array_equal(same, pixels)


def test_a_photograph_is_prepared_as_in_training(tmp_path):
    """From a JPEG file to resized pixels, the difference is a level of 255 at most."""
    y, x = np.mgrid[:301, :403] / 60
    waves = 127 + 120 * np.stack([np.sin(x * y), np.cos(3 * x), np.sin(5 * y + x)], axis=-1)
    Image.fromarray(waves.astype("uint8")).save(tmp_path / "a.jpg", quality=85)
    written = tf.io.read_file(str(tmp_path / "a.jpg"))
    for options in (Preprocessing(), Preprocessing(interpolation="bicubic", rounding="none")):
        expected = tf_preprocess.resize(tf_images.decode(written, 3), (224, 224), options)
        picture = data.read_image(tmp_path / "a.jpg", 3)
        resized = data.resize(picture, (224, 224), options)
        assert np.abs(resized - expected.numpy()).max() <= 1


def test_an_unknown_interpolation_is_named():
    with pytest.raises(ValueError, match="'bilinear', 'bicubic', 'nearest'. Received: 'area'"):
        data.resize(np.zeros((4, 4, 3)), (2, 2), Preprocessing(interpolation="area"))
