"""The operations of RandAugment and its kin equal those of timm, torchvision, and the papers."""

import types

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.peers import peer
from vit_keras.data.randaugment import (
    GRAY,
    IMAGENET,
    OPERATIONS,
    RANDAUGMENT,
    autoaugment,
)

pytestmark = pytest.mark.once

SIDE = 96
PLACES = ("translate_x", "translate_y", "cutout")  # whose lengths timm states otherwise
v2 = peer("torchvision.transforms.v2")
timm = peer("timm.data.auto_augment")


@pytest.fixture(params=[0, 1])
def picture(request, rng):
    """A part of a photograph, darker in one channel, so that no histogram is flat or full."""
    pixels = load_sample_images().images[request.param]
    top, left = rng.integers(0, 300, 2)
    part = pixels[top : top + SIDE, left : left + SIDE + 8]
    return Image.fromarray((part * [0.9, 0.7, 0.5] + 10).astype("uint8"))


def pixels(picture):
    return np.asarray(picture).astype(int)


def camel(name):
    return "".join(part.capitalize() for part in name.split("_"))


@pytest.mark.parametrize("name", [name for name in RANDAUGMENT if name not in PLACES])
def test_operations_of_randaugment_are_timms(picture, name, monkeypatch):
    """timm's code follows the published one; its interpolation is set to the published one."""
    monkeypatch.setattr(timm, "_randomly_negate", lambda value: value)
    settings = {"resample": Image.Resampling.NEAREST, "fillcolor": GRAY}
    level_of = timm.LEVEL_TO_ARG[camel(name)]
    for magnitude in (3, 4.5, 9):
        arguments = level_of(magnitude, {}) if level_of else ()
        arguments = arguments if isinstance(arguments, tuple) else (arguments,)
        expected = timm.NAME_TO_OP[camel(name)](picture, *arguments, **settings)
        amounts = RANDAUGMENT[name](magnitude / 10, 1, (SIDE, SIDE))
        np.testing.assert_array_equal(pixels(OPERATIONS[name](picture, *amounts)), pixels(expected))


def test_lengths_of_randaugment_are_the_published_shares_of_224_pixels(picture):
    size = (picture.height, picture.width)
    before = pixels(picture)
    for name, axis in (("translate_y", 0), ("translate_x", 1)):
        (amount,) = RANDAUGMENT[name](0.5, -1, size)
        assert amount == pytest.approx(-0.5 * 100 / 224 * size[axis])
        shift = round(-amount)  # nearest pixels
        after = pixels(OPERATIONS[name](picture, -float(shift)))
        after, source = (np.moveaxis(x, axis, 0) for x in (after, before))
        np.testing.assert_array_equal(after[shift:], source[:-shift])
        assert (after[:shift] == 128).all()
    (half,) = RANDAUGMENT["cutout"](1.0, 1, size)
    assert half == int(40 / 224 * min(size))
    after = pixels(OPERATIONS["cutout"](picture, half, 0.5, 0.05))
    y, x = int(0.5 * size[0]), int(0.05 * size[1])
    expected = before.copy()
    expected[y - half : y + half, : x + half] = 128
    np.testing.assert_array_equal(after, expected)


def drawn(*rows):
    """A generator that draws these numbers."""
    return types.SimpleNamespace(random=np.array(rows, "float32").reshape)


def torchvisions(policy, picture, name, magnitude):
    fill = {Image.Image: list(GRAY)}
    method = v2.InterpolationMode.NEAREST
    return policy._apply_image_or_video_transform(picture, name, magnitude, method, fill)


def torchvision_name(name):
    return "AutoContrast" if name == "auto_contrast" else camel(name)


@pytest.mark.parametrize("number", range(0, len(IMAGENET), 3))
def test_autoaugment_is_torchvisions_policy_for_imagenet(picture, number):
    policy = v2.AutoAugment(fill=list(GRAY))
    assert len(policy._policies) == len(IMAGENET)
    expected, size = picture, (picture.height, picture.width)
    for name, probability, level in policy._policies[number]:
        table = policy._AUGMENTATION_SPACE[name][0](10, *size)
        magnitude = 0.0 if table is None else float(table[level])
        if probability > 0.3:
            expected = torchvisions(policy, expected, name, magnitude)
    choice = (number + 0.5) / len(IMAGENET)
    made = picture
    for name, *amounts in autoaugment(drawn((choice, 0.1, 0.3, 0), (0, 0.1, 0.3, 0)), size):
        made = OPERATIONS[name](made, *amounts)
    np.testing.assert_array_equal(pixels(made), pixels(expected))
