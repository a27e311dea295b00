"""The inputs and targets of pretext tasks: masked patches, and views as by torchvision."""

import dataclasses
import itertools

import keras
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.helpers import assert_close
from tests.peers import peer
from vit_keras import data
from vit_keras.config import AugmentConfig, DinoConfig, PretextConfig
from vit_keras.data import Masking, Views, from_arrays
from vit_keras.data.batches import EXAMPLE, generator
from vit_keras.data.cropping import random_window
from vit_keras.data.pretext import colors
from vit_keras.data.randaugment import OPERATIONS, apply
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once
SIZE, PATCH = (8, 24), (4, 8)  # 2 x 3 patches, not square
NUMERICS = Preprocessing((0.4, 0.5, 0.3), (0.2, 0.25, 0.3))


def masking(image_size=SIZE, patch_size=PATCH, objective="masked_patch", **fields):
    config = PretextConfig(objective, **fields)
    return Masking(config, image_size, patch_size, NUMERICS)


def drawn(made, count):
    """Draws `source` and `corrupted` for `count` keys, `(count, N)`."""
    actual = [made.draw(generator(2**63 - 1, EXAMPLE, i)) for i in range(count)]
    return [np.stack([one[name] for one in actual]) for name in ("source", "corrupted")]


def patches_of(image, patch_size):
    (height, width), (rows, columns) = patch_size, image.shape[:2]
    places = itertools.product(range(0, rows, height), range(0, columns, width))
    return [image[top : top + height, left : left + width] for top, left in places]


def test_half_is_corrupted_and_of_that_most_masked():
    count, patches = 3000, 20
    source, corrupted = drawn(masking((16, 40), (4, 8)), count)
    assert (corrupted.sum(axis=1) == patches // 2).all()
    np.testing.assert_allclose(corrupted.mean(axis=0), 0.5, atol=0.05)  # wherever a patch is
    places = np.broadcast_to(np.arange(patches), source.shape)
    np.testing.assert_array_equal(source[~corrupted], places[~corrupted])
    masked = source == patches
    other = (source != places) & ~masked
    shares = [part[corrupted].mean() for part in (masked, other, ~masked & ~other)]
    deviation = np.sqrt(0.8 * 0.2 / corrupted.sum())
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=5 * deviation)
    steps = np.bincount((source - places)[other] % patches, minlength=patches)
    assert steps[0] == 0 and steps[1:].min() > 0.7 * other.sum() / (patches - 1)


def test_mae_masks_all_that_is_corrupted():
    source, corrupted = drawn(masking((16, 40), (4, 8), "mae"), 50)
    assert (corrupted.sum(axis=1) == 15).all() and len(np.unique(corrupted, axis=0)) == 50
    np.testing.assert_array_equal(source, np.where(corrupted, 20, np.arange(20)))


def images_of(rng, count):
    return rng.integers(0, 256, (count, *SIZE, 3), dtype="uint8")


@pytest.mark.parametrize("bits", [1, 3])
@pytest.mark.parametrize(("target", "side"), [("mean_color", 1), ("colors_4x4", 4)])
def test_colors_are_classes(rng, target, side, bits):
    pixels = images_of(rng, 5)
    actual = masking(target=target, bits=bits).targets(NUMERICS.normalize(pixels.astype("float32")))
    expected = []
    for image in pixels:
        for patch in patches_of(image, PATCH):
            for cell in patches_of(patch, (PATCH[0] // side, PATCH[1] // side)):
                red, green, blue = np.floor(cell.mean(axis=(0, 1)) / 255 * 2**bits)
                expected.append((red * 2**bits + green) * 2**bits + blue)
    np.testing.assert_array_equal(actual, np.reshape(expected, (5, -1)))


@pytest.mark.parametrize("target", ["patch", "normalized_patch"])
def test_pixels_are_regressed(rng, target):
    images = rng.normal(size=(3, *SIZE, 3)).astype("float32")
    actual = masking(target=target).targets(images)
    expected = np.array([[p.reshape(-1) for p in patches_of(image, PATCH)] for image in images])
    if target == "normalized_patch":
        variance = expected.astype("float64").var(axis=-1, ddof=1, keepdims=True)
        expected = (expected - expected.mean(axis=-1, keepdims=True)) / np.sqrt(variance + 1e-6)
    assert_close(actual, expected, rtol=2e-6)


PRETEXTS = {
    "patches": masking(),
    "views": Views(DinoConfig(3, 4, blur_sigma=0.7), SIZE, NUMERICS, flip=True),
}
BOTH = pytest.mark.parametrize("pretext", PRETEXTS)


def batches(split, batch, pretext, start=0, shard=(0, 1), **mixing):
    changes = AugmentConfig(rotation_degrees=20.0, flip=True, **mixing)
    options = {"image_size": SIZE, "preprocessing": NUMERICS, "batch": batch, "shard": shard}
    options |= {"augment_config": changes, "seed": 3, "num_classes": 2}
    options |= {"start_step": start, "total_steps": 12 // batch}
    return list(data.train_batches(split, masking=pretext, **options))


def joined(made):
    leaves = [keras.tree.flatten(batch) for batch in made]
    return [np.concatenate(part) for part in zip(*leaves)]


@pytest.fixture
def split(rng):
    return from_arrays(images_of(rng, 10), np.arange(10) % 2)


@BOTH
def test_inputs_of_a_run_depend_on_nothing_but_the_number_of_the_example(split, pretext):
    made = PRETEXTS[pretext]
    whole = joined(batches(split, 6, made))
    if pretext == "patches":
        assert (whole[1][:2] != whole[1][10:]).any()  # the same two images, an epoch later or so
    else:
        assert [part.shape for part in whole] == [(12, 2, 8, 24, 3), (12, 3, 4, 4, 3), (12, 2)]
        assert len(np.unique(whole[1].reshape(36, -1), axis=0)) == 36
    first, rest = batches(split, 6, made)[:1], batches(split, 6, made, start=1)
    halves = [batches(split, 6, made, shard=(r, 2)) for r in (0, 1)]
    for part in (batches(split, 2, made), first + rest, [b for pair in zip(*halves) for b in pair]):
        for one, other in zip(whole, joined(part), strict=True):
            np.testing.assert_array_equal(one, other)


@BOTH
def test_pictures_of_a_pretext_task_are_not_mixed(split, pretext):
    made, mixing = PRETEXTS[pretext], {"mixup_alpha": 0.5, "cutmix_alpha": 0.5}
    for one, other in zip(*(joined(batches(split, 6, made, **mix)) for mix in ({}, mixing))):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("target", ["mean_color", "colors_4x4", "patch"])
def test_weights_spare_what_is_not_corrupted(split, target):
    made = masking(target=target)
    (images, source), targets, weights = batches(split, 6, made)[0]
    expected = made.targets(images)  # of the augmented images
    np.testing.assert_array_equal(targets, expected)
    per_patch = weights.reshape(6, 6, -1)
    assert per_patch.shape[2] == (16 if target == "colors_4x4" else 1)
    assert set(np.unique(weights)) == {0.0, 2.0} and weights.mean() == 1.0
    changed = source != np.arange(6)
    assert (per_patch[changed] == 2).all()  # patches kept as they are count as well


@BOTH
def test_held_out_inputs_stay_and_padding_weighs_nothing(split, pretext):
    options = {"image_size": SIZE, "preprocessing": NUMERICS, "batch": 4}
    options["masking"] = PRETEXTS[pretext]
    one, again = (joined(data.eval_batches(split, **options)) for _ in "ab")
    *inputs, weights = joined(data.eval_batches(split, **options, num_classes=2, pad=True))
    for part, same, longer in zip(one, again, inputs):
        np.testing.assert_array_equal(part, same)
        np.testing.assert_array_equal(part, longer[:10])
    expected = one[3] if pretext == "patches" else np.ones(10)
    assert_close(weights[:10], 1.2 * expected, rtol=1e-6)
    assert (weights[10:] == 0).all() and weights.mean() == pytest.approx(1)


VIEW_SIZE, VIEWED = (12, 8), Preprocessing(mean=(0.4,), std=(0.3,))
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
    top, left = rng.integers(90, 120, 2)
    pixels = load_sample_images().images[0][top : top + sides[0], left : left + sides[1]]
    return Image.fromarray(pixels).convert(mode)


def streams(count):
    return [(generator(5, i), generator(5, i)) for i in range(count)]


@pytest.mark.parametrize(("mode", "strength"), [("L", 1.0), ("RGB", 0.8)])
def test_jitter_is_torchvisions_in_a_drawn_order(rng, mode, strength):
    picture, orders = picture_of(rng, mode), []
    for stream, again in streams(50):
        policy = colors(dataclasses.replace(PLAIN, color_jitter=strength), mode, 0.0, 0.0)
        result, expected = apply(policy, picture, stream), picture
        if again.random() >= 0.8:
            np.testing.assert_array_equal(result, picture)
            continue
        orders.append(tuple(again.permutation(list(ADJUST)[: 4 if mode == "RGB" else 2])))
        for name in orders[-1]:
            most = {"brightness": 0.4, "contrast": 0.4, "color": 0.2, "hue": 0.1}[name]
            low, high = -most * strength, most * strength
            if name != "hue":  # factors, which are not negative
                low, high = max(0.0, 1 + low), 1 + high
            expected = ADJUST[name](expected, again.uniform(low, high))
        np.testing.assert_array_equal(result, expected)
        assert result.mode == mode
    assert len(set(orders)) == 2 if mode == "L" else len(set(orders)) > 12


RATES = {"color_jitter": (1.0, 0, 0.8), "grayscale": (0.3, 0, 0.3), "solarize": (0.3, 1, 0.3)}


@pytest.mark.parametrize("name", RATES)
def test_colors_change_at_their_rates(rng, name):
    picture, (value, number, rate) = picture_of(rng), RATES[name]
    luma = functional.to_grayscale(picture, num_output_channels=3)
    np.testing.assert_array_equal(OPERATIONS["gray"](picture), luma)
    solarized = functional.solarize(picture, 128)
    np.testing.assert_array_equal(OPERATIONS["solarize"](picture, 128), solarized)
    changing = dataclasses.replace(PLAIN, **{name: value})
    view = lambda config, i: Views(config, VIEW_SIZE, VIEWED).draw(picture, generator(i))[0][number]
    changed = [np.abs(view(PLAIN, i) - view(changing, i)).max() > 1e-3 for i in range(400)]
    assert np.sum(changed) == pytest.approx(400 * rate, abs=5 * np.sqrt(400 * rate * (1 - rate)))


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("kind", ["L", "RGB", 2, 6])
def test_without_changes_of_color_a_view_is_a_resized_part_or_its_mirror_image(rng, kind, number):
    """By torchvision; by Pillow, channel by channel, for pictures of 12 bits."""
    stream, again = streams(3)[number]
    if isinstance(kind, str):
        picture, channels = picture_of(rng, kind), len(kind)
    else:
        channels = kind
        picture = rng.integers(0, 4096, (45, 60, channels)).astype("uint16")
    whole, local = Views(PLAIN, VIEW_SIZE, VIEWED, flip=True).draw(picture, stream)
    assert whole.shape == (2, *VIEW_SIZE, channels) and local.shape == (2, 4, 4, channels)
    for view, area in zip([*whole, *local], [(0.5, 0.9)] * 2 + [(0.2, 0.4)] * 2):
        top, left, height, width = random_window((45, 60), again, area)
        view = view[:, ::-1] if again.random() < 0.5 else view
        sides, method = view.shape[:2], functional.InterpolationMode.BICUBIC
        if isinstance(kind, str):
            expected = functional.resized_crop(picture, top, left, height, width, sides, method)
        else:
            part = picture[top : top + height, left : left + width].astype("float32")
            bands = [Image.fromarray(part[..., c]) for c in range(channels)]
            resized = [band.resize(sides[::-1], Image.Resampling.BICUBIC) for band in bands]
            expected = np.clip(np.stack(resized, axis=-1), part.min(), part.max())
        assert_close(view, (np.reshape(expected, view.shape) / 255 - 0.4) / 0.3)
