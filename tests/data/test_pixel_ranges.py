"""Arrays of another range, depth, order of axes or type than the model's."""

import warnings

import keras
import numpy as np
import pytest

from vit_keras import applications, data
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once

WARNED = {  # what is said of pixels in 0..1 after a change
    r"in \[0, 255\]. Received: .*float32 from 0.\d+ to 0.9\d+. Scale": (
        lambda x: x,
        Preprocessing(),
    ),
    r"in \[0, 65535\]. Received: .*float32": (lambda x: x, Preprocessing(levels=65535)),
    r"in \[0, 1\]. Received: .*float32 .* to 25": (lambda x: 255 * x, Preprocessing(levels=1)),
    r"in \[0, 255\]. Received: .*float32 .* to 65": (lambda x: 65535 * x, Preprocessing()),
    "float32 from -1.9.* leave out this step if a model": (lambda x: 4 * x - 2, Preprocessing()),
}


@pytest.mark.parametrize("case", WARNED)
@pytest.mark.parametrize("kind", ["numpy", "backend"])
def test_pixels_of_another_range_are_warned_of(rng, case, kind):
    change, how = WARNED[case]
    images = change(rng.random((2, 8, 8, 3))).astype("float32")
    tensor = keras.ops.convert_to_tensor(images) if kind == "backend" else images
    calls = [lambda: data.normalize(tensor, how)]
    if kind == "numpy":
        calls.append(lambda: data.resize(images, (4, 4), how))
    if how.levels == 255:
        calls.append(lambda: applications.preprocess_input(keras.ops.copy(tensor)))
    for call in calls:
        with pytest.warns(UserWarning, match=case):
            call()


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


@pytest.mark.parametrize("levels", [255, 65535, 1])
@pytest.mark.parametrize("dtype", ["bool", ">u2", "int64"])
def test_whole_numbers_are_brought_to_the_levels_of_a_model(rng, dtype, levels):
    pixels = rng.integers(0, 2 if dtype == "bool" else 65536, (2, 8, 12, 3))
    pixels[0, 0, 0] = 0 if dtype == "bool" else 65535
    given, how = pixels.astype(dtype), Preprocessing(levels=levels)
    actual = data.normalize(data.resize(given, (8, 12), how), how)
    np.testing.assert_allclose(data.normalize(given, how), actual, atol=1e-6)
    if levels == 255:
        copy = np.array(given)
        np.testing.assert_allclose(applications.preprocess_input(copy), actual, atol=1e-3)
    white = 1 if dtype == "bool" else 65535
    step = 1 / 255 if levels == 255 else 1e-6
    np.testing.assert_allclose(actual, 2 * pixels / white - 1, atol=1.01 * step)


AXES = r"must have the axes \(height, width, channels\)"
TYPES = "must be real numbers in one array"
REFUSED = {
    "one picture, channels first": (lambda x: x[0].transpose(2, 0, 1), f"{AXES}.*moveaxis"),
    "no channels": (
        lambda x: x[0, :, :, 0],
        f"{AXES}.*shape .2?,? ?8, 12\\).*images\\[..., None\\]",
    ),
    "a row": (lambda x: x[0, 0, :, 0], f"{AXES}.*None"),
    "NaN": (lambda x: np.where(x < 9, np.nan, x), "Pixels must be finite"),
    "objects": (lambda x: x.astype(object), TYPES),
    "several sizes": (lambda x: [x[0], x[1, :5]], f"{TYPES}.*np.stack"),
    "12 bits in 16": (
        lambda x: 15 * x.astype("uint16"),
        "levels reach 3825, too low .12 bits, perhaps.* white at 255",
    ),
    "negative levels": (lambda x: x.astype("int16") - 128, "from 0 to 65535, not -128"),
    "32 bits": (lambda x: x.astype("uint32") << 24, "from 0 to 65535, not 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_are_no_pixels_is_refused(rng, case):
    change, message = REFUSED[case]
    pixels = rng.integers(0, 256, (2, 8, 12, 3)).astype("uint8")
    pixels[:, :2, 0] = [[[0], [255]]]
    given, plain = change(pixels), Preprocessing()
    calls = [
        lambda: data.resize(given, (4, 4), plain),
        lambda: applications.preprocess_input(given),
    ]
    if case not in ("no channels", "a row"):  # which need no axes
        calls.append(lambda: data.normalize(given, plain))
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call()
