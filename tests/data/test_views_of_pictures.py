"""The views of self-distillation: colors are torchvision's, and batches repeat."""

import keras
import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_sample_images

from tests.helpers import assert_close
from tests.peers import peer
from vit_keras import data
from vit_keras.config import AugmentConfig, DinoConfig
from vit_keras.data import from_arrays, pretext
from vit_keras.data.batches import generator
from vit_keras.data.pretext import Views
from vit_keras.data.transforms import random_window
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once
SIZE, NUMERICS = (12, 8), Preprocessing(mean=(0.4,), std=(0.3,))
SMALL = DinoConfig(3, 4, blur_sigma=0.7)
NONE = {"color_jitter": 0.0, "grayscale": 0.0, "blur_sigma": 0.0, "solarize": 0.0}
PLAIN = DinoConfig(2, 4, (0.5, 0.9), (0.2, 0.4), **NONE)
functional = peer("torchvision.transforms.functional")
ADJUST = {
    "brightness": functional.adjust_brightness,
    "contrast": functional.adjust_contrast,
    "color": functional.adjust_saturation,
    "hue": functional.adjust_hue,
}


def picture_of(rng, mode="RGB", sides=(45, 60)):
    """A part of a photograph with many edges."""
    top, left = rng.integers(90, 120, 2)
    pixels = load_sample_images().images[0][top : top + sides[0], left : left + sides[1]]
    return Image.fromarray(pixels).convert(mode)


def streams(count):
    """Pairs of generators with the same stream."""
    return [(generator(5, i), generator(5, i)) for i in range(count)]


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_jitter_is_torchvisions_in_a_drawn_order(rng, mode):
    picture, orders = picture_of(rng, mode), []
    for stream, again in streams(60):
        result, expected = pretext.jitter(picture, stream, 0.8), picture
        if again.random() < 0.8:
            orders.append(tuple(again.permutation(list(ADJUST)[: 4 if mode == "RGB" else 2])))
            for name in orders[-1]:
                most = 0.8 * {"brightness": 0.4, "contrast": 0.4, "color": 0.2, "hue": 0.1}[name]
                amount = again.uniform(*((-most, most) if name == "hue" else (1 - most, 1 + most)))
                expected = ADJUST[name](expected, amount)
        np.testing.assert_array_equal(result, expected)
        assert result.mode == mode
    assert 36 <= len(orders) <= 58
    assert len(set(orders)) == 2 if mode == "L" else len(set(orders)) > 12


def test_brightness_is_spread_evenly_up_to_its_limits():
    """All else does nothing to a plain gray picture."""
    plain = Image.new("L", (1, 1), 100)
    levels = np.array(
        [pretext.jitter(plain, generator(i), 1.0).getpixel((0, 0)) for i in range(3000)]
    )
    changed = levels[levels != 100]
    assert len(changed) / 3000 == pytest.approx(0.8, abs=5 * np.sqrt(0.16 / 3000) + 1 / 80)
    assert changed.min() >= 59 and changed.max() <= 140
    quantiles = np.quantile(changed, np.linspace(0.1, 0.9, 9))
    np.testing.assert_allclose(quantiles, 100 + 80 * np.linspace(-0.4, 0.4, 9), atol=4)
    strong = [pretext.jitter(plain, generator(i), 9.0).getpixel((0, 0)) for i in range(300)]
    assert strong.count(0) < 12  # factors are not negative, however strong the jitter is


@pytest.mark.parametrize("circles", [-0.5, -0.31, -0.001, 0.0, 0.07, 0.5])
def test_hues_are_turned_as_by_torchvision(rng, circles):
    picture = picture_of(rng)
    np.testing.assert_array_equal(
        pretext.turn(picture, circles), functional.adjust_hue(picture, circles)
    )


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_blur_is_about_a_gaussian_with_repeated_edges(rng, mode):
    picture, sigmas = picture_of(rng, mode), []
    for stream, again in streams(20):
        result = np.asarray(pretext.blur(picture, stream, 1.0, 2.0)).astype(float)
        again.random()
        sigmas.append(again.uniform(0.1, 2.0))
        widths = (sigmas[-1], sigmas[-1], *([0] if mode == "RGB" else []))
        expected = gaussian_filter(np.asarray(picture).astype(float), widths, mode="nearest")
        limit = 1.1 if sigmas[-1] > 0.5 else 2.5  # Pillow's box is 1 to 3 pixels wide there
        assert np.abs(result - expected).mean() < limit
    assert min(sigmas) < 0.4 and max(sigmas) > 1.7
    assert np.abs(result - np.asarray(picture)).mean() > 4
    assert pretext.blur(picture, generator(1), 1.0, 0.0) is picture


def test_colors_are_taken_and_bright_pixels_inverted_at_their_rates(rng):
    picture = picture_of(rng)
    luma = functional.to_grayscale(picture, num_output_channels=3)
    inverted = functional.solarize(picture, 128)
    blurred = pretext.blur(picture, generator(0), 1.0, 0.1)
    blur = lambda picture, stream, share: pretext.blur(picture, stream, share, 0.1)
    for change, expected in (
        (pretext.grayscale, luma),
        (pretext.solarize, inverted),
        (blur, blurred),
    ):
        results = [change(picture, stream, 0.3) for stream, _ in streams(400)]
        changed = [result for result in results if result is not picture]
        assert len(changed) == pytest.approx(120, abs=5 * np.sqrt(400 * 0.21))
        for result in changed:
            np.testing.assert_allclose(
                np.asarray(result, int), expected, atol=4 if change is blur else 0
            )
        assert change(picture, generator(1), 0.0) is picture
    gray = picture_of(rng, "L")
    np.testing.assert_array_equal(pretext.grayscale(gray, generator(1), 1.0), gray)


def boxes_of(stream, sides):
    """The windows of two global and two local views that no color changes."""
    return [random_window(sides, stream, area) for area in [(0.5, 0.9)] * 2 + [(0.2, 0.4)] * 2]


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_without_changes_of_color_a_view_is_a_resized_part(rng, mode):
    picture, (stream, again) = picture_of(rng, mode), streams(1)[0]
    published = Preprocessing((0.4,), (0.3,), antialias=False, rounding="none")
    whole, local = Views(PLAIN, SIZE, published).draw(picture, stream)
    channels = len(mode)
    assert whole.shape == (2, *SIZE, channels) and local.shape == (2, 4, 4, channels)
    for view, (top, left, height, width) in zip([*whole, *local], boxes_of(again, (45, 60))):
        sides = view.shape[:2]
        expected = functional.resized_crop(
            picture, top, left, height, width, sides, functional.InterpolationMode.BICUBIC
        )
        expected = (np.asarray(expected).reshape(view.shape) / 255 - 0.4) / 0.3
        assert_close(view, expected)


@pytest.mark.parametrize("channels", [2, 6])
def test_views_of_pictures_of_16_bits_and_more_channels(rng, channels):
    pixels = rng.integers(0, 4096, (45, 60, channels)).astype("uint16")
    for stream, again in streams(3):
        views = Views(PLAIN, SIZE, NUMERICS).draw(pixels, stream)
        for view, (top, left, height, width) in zip(
            [*views[0], *views[1]], boxes_of(again, (45, 60))
        ):
            part = pixels[top : top + height, left : left + width].astype("float32")
            sides, method = view.shape[1::-1], Image.Resampling.BICUBIC
            resized = [Image.fromarray(part[..., c]).resize(sides, method) for c in range(channels)]
            expected = np.clip(np.stack(resized, axis=-1), part.min(), part.max())
            assert_close(view, (expected / 255 - 0.4) / 0.3)


def test_half_of_the_views_are_mirrored(rng):
    picture, views = picture_of(rng), []
    for flip in (False, True):
        views.append(
            [
                Views(PLAIN, SIZE, NUMERICS, flip).draw(picture, generator(i))[0][0]
                for i in range(200)
            ]
        )
    mirrored = [np.array_equal(view, plain[:, ::-1]) for plain, view in zip(*views)]
    for plain, view, is_mirrored in zip(*views, mirrored):
        assert is_mirrored or np.array_equal(plain, view)
    assert sum(mirrored) == pytest.approx(100, abs=5 * np.sqrt(50))


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
        masking=Views(SMALL, SIZE, NUMERICS, flip=True),
    )
    return list(made)


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
    options["masking"] = Views(SMALL, SIZE, NUMERICS)
    one, again = (joined(data.eval_batches(split, **options)) for _ in "ab")
    padded = data.eval_batches(split, **options, num_classes=2, pad=True)
    padded = joined(padded)
    for part, same, longer in zip(one, again, padded):
        np.testing.assert_array_equal(part, same)
        np.testing.assert_array_equal(part, longer[:10])
    assert_close(padded[3], [1.2] * 10 + [0, 0], rtol=1e-6)
