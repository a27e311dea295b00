"""Pixels of another range than the model's are warned of."""

import warnings

import keras
import pytest

from vit_keras import applications, data
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once

WARNED = {
    "Received: floats up to 1. Multiply them by 255": (lambda x: x, Preprocessing()),
    "Received: floats up to 1. Multiply them by 65535": (lambda x: x, Preprocessing(levels=65535)),
    "Received: levels above 1. Divide them": (lambda x: 255 * x, Preprocessing(levels=1)),
    "Received: levels above 255. Divide them": (lambda x: 65535 * x, Preprocessing()),
    "Received: floats up to 1. Multiply": (lambda x: 2 * x - 1, Preprocessing()),
}


@pytest.mark.parametrize("case", [*WARNED])
@pytest.mark.parametrize("kind", ["numpy", "backend"])
def test_pixels_of_another_range_are_warned_of(rng, case, kind):
    change, how = WARNED[case]
    images = change(rng.random((2, 8, 8, 3))).astype("float32")
    tensor = keras.ops.convert_to_tensor(images) if kind == "backend" else images
    with pytest.warns(UserWarning, match=case):
        data.normalize(tensor, how)
    if kind == "numpy":
        with pytest.warns(UserWarning, match=case):
            data.resize(images, (4, 4), how)
    if how.levels == 255:
        with pytest.warns(UserWarning, match=case):
            applications.preprocess_input(keras.ops.copy(tensor))


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_black_and_right_pixels_are_not_warned_of(rng, dtype):
    how = Preprocessing()
    black = rng.integers(0, 2, (8, 8, 3))
    for pixels in (0 * black, black, 255 * black):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if dtype != "float32" or pixels.max() != 1:
                resized = data.resize(pixels.astype(dtype), (4, 4), how)
                applications.preprocess_input(pixels.astype(dtype).astype("int64"))
                data.normalize(resized, how)
            data.normalize(pixels.astype(dtype), how)
            data.normalize(rng.random((2, 2, 3)), Preprocessing(levels=1))
