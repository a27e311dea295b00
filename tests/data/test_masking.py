"""The corruption and the targets of a pretext task, compared with plain loops."""

import numpy as np
import pytest

from tests.helpers import assert_close
from vit_keras import data
from vit_keras.config import AugmentConfig, PretextConfig
from vit_keras.data import Masking, from_arrays
from vit_keras.data.batches import EXAMPLE, generator
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
    (height, width), actual = patch_size, []
    for top in range(0, image.shape[0], height):
        for left in range(0, image.shape[1], width):
            actual.append(image[top : top + height, left : left + width])
    return actual


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
    assert (corrupted.sum(axis=1) == 15).all()
    places = np.broadcast_to(np.arange(20), source.shape)
    np.testing.assert_array_equal(source, np.where(corrupted, 20, places))
    assert len(np.unique(corrupted, axis=0)) == 50


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


def batches(split, batch, start=0, shard=(0, 1), target=None):
    made = data.train_batches(
        split,
        image_size=SIZE,
        preprocessing=NUMERICS,
        batch=batch,
        augment_config=AugmentConfig(rotation_degrees=20.0, flip=True),
        seed=3,
        start_step=start,
        total_steps=12 // batch,
        num_classes=2,
        shard=shard,
        masking=masking(target=target),
    )
    return list(made)


def joined(actual):
    """Joins the images, sources, targets, and weights of all batches."""
    inputs, *rest = zip(*actual)
    return [np.concatenate(part) for part in (*zip(*inputs), *rest)]


@pytest.fixture
def split(rng):
    return from_arrays(images_of(rng, 10), np.arange(10) % 2)


def test_masks_of_a_run_depend_on_nothing_but_the_number_of_the_example(split):
    whole = joined(batches(split, 6))
    assert (whole[1][:2] != whole[1][10:]).any()  # the same two images, an epoch later or so
    for part in (batches(split, 2), [*batches(split, 6)[:1], *batches(split, 6, start=1)]):
        for one, other in zip(whole, joined(part)):
            np.testing.assert_array_equal(one, other)
    halves = [batches(split, 6, shard=(r, 2)) for r in (0, 1)]
    for one, other in zip(whole, joined([b for pair in zip(*halves) for b in pair])):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("target", ["mean_color", "colors_4x4", "patch"])
def test_weights_spare_what_is_not_corrupted(split, target):
    (images, source), targets, weights = batches(split, 6, target=target)[0]
    expected = masking(target=target).targets(images)  # of the augmented images
    np.testing.assert_array_equal(targets, expected)
    per_patch = weights.reshape(6, 6, -1)
    assert per_patch.shape[2] == (16 if target == "colors_4x4" else 1)
    assert set(np.unique(weights)) == {0.0, 2.0} and weights.mean() == 1.0
    changed = source != np.arange(6)
    assert (per_patch[changed] == 2).all()  # patches kept as they are count as well


def test_held_out_masks_stay_and_padding_weighs_nothing(split):
    options = {"image_size": SIZE, "preprocessing": NUMERICS, "batch": 4, "masking": masking()}
    one = list(data.eval_batches(split, **options))
    again = joined(data.eval_batches(split, **options))
    for actual, expected in zip(again, joined(one)):
        np.testing.assert_array_equal(actual, expected)
    padded = joined(data.eval_batches(split, **options, num_classes=2, pad=True))
    for i in range(3):
        np.testing.assert_array_equal(padded[i][:10], again[i])
    assert_close(padded[3][:10], 1.2 * again[3], rtol=1e-6)
    assert (padded[3][10:] == 0).all() and padded[3].mean() == pytest.approx(1)
