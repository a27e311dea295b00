"""Images and batches, compared with plain NumPy."""

import numpy as np
import pytest

from tests.helpers import assert_close
from vit_keras import data
from vit_keras.config import AugmentConfig
from vit_keras.data import augment, from_arrays
from vit_keras.data.batches import generator
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once
PLAIN = {"image_size": (6, 5), "preprocessing": Preprocessing()}


@pytest.fixture
def split(rng):
    """Ten images; every pixel of an image is 20 times its number."""
    images = np.broadcast_to(np.arange(10, dtype="uint8")[:, None, None, None] * 20, (10, 6, 5, 1))
    return from_arrays(np.array(images), np.arange(10))


def batches(split, start_step=0, seed=3, total_steps=10):
    made = data.train_batches(
        split,
        **PLAIN,
        batch=4,
        augment_config=AugmentConfig(),
        seed=seed,
        start_step=start_step,
        total_steps=total_steps,
        num_classes=10,
    )
    assert len(made) == total_steps - start_step
    return [(images, labels.argmax(axis=1)) for images, labels in made]


def test_every_epoch_shows_each_image_once_in_an_order_of_its_own(split):
    actual = batches(split)
    labels = np.concatenate([labels for _, labels in actual]).reshape(4, 10)
    for epoch in labels:
        assert sorted(epoch) == list(range(10))
    assert len({tuple(epoch) for epoch in labels}) == 4
    for images, classes in actual:  # pixels come with their own label, in [-1, 1]
        expected = (classes * 20 / 127.5 - 1)[:, None, None, None] * np.ones((1, 6, 5, 1))
        assert_close(images, expected, rtol=1e-6)
    other = np.concatenate([labels for _, labels in batches(split, seed=4)]).reshape(4, 10)
    assert not np.array_equal(labels, other)


def test_two_splits_are_joined():
    digits = data.load("digits", 1)
    both, parts = digits.split("test+train[:10]"), (digits.split("test"), digits.split("train"))
    assert len(both) == 370
    np.testing.assert_array_equal(both.labels[360:], parts[1].labels[:10])
    for index, (part, i) in {0: (0, 0), 359: (0, 359), 360: (1, 0), 369: (1, 9)}.items():
        image, label = both.example(index)
        np.testing.assert_array_equal(image, parts[part].read(i))
        assert label == parts[part].labels[i]


def test_padded_batches_are_whole_and_weigh_what_was_added_with_nothing(split):
    made = data.eval_batches(split, **PLAIN, batch=4, num_classes=10, pad=True)
    images, labels, weights = map(np.concatenate, zip(*made))
    assert len(made) == 3 and {len(images) for images, *_ in made} == {4}
    numbers = [*range(10), 9, 9]
    np.testing.assert_array_equal(labels, np.eye(10)[numbers])
    assert_close(images[:, 0, 0, 0], np.array(numbers) * 20 / 127.5 - 1, rtol=1e-6)
    assert_close(weights, [1.2] * 10 + [0, 0], rtol=1e-6)  # 1 on average


@pytest.mark.parametrize("pad", [False, True])
def test_processes_share_the_rows_of_each_evaluated_batch(split, pad):
    whole = list(data.eval_batches(split, **PLAIN, batch=4, num_classes=10, pad=pad))
    parts = [
        list(data.eval_batches(split, **PLAIN, batch=4, num_classes=10, pad=pad, shard=(r, 2)))
        for r in range(2)
    ]
    for m, batch in enumerate(whole):
        shared = zip(*(part[m] for part in parts if m < len(part)))
        for tensor, pieces in zip(batch, shared, strict=True):
            np.testing.assert_array_equal(np.concatenate(pieces), tensor)


def maps(config, count=400, size=21):
    """Draws affine maps in coordinates around the center, `(count, 2, 3)`."""
    made = np.stack([augment.draw_map(generator(i), (size, size), config) for i in range(count)])
    center = np.full(2, (size - 1) / 2)
    made[..., 2] += made[..., :2] @ center - center
    return made


def test_rotation_turns_about_the_center():
    actual = maps(AugmentConfig(rotation_degrees=30))
    turns, shifts = actual[..., :2], actual[..., 2]
    identity = np.broadcast_to(np.eye(2), turns.shape)
    np.testing.assert_allclose(turns @ turns.transpose(0, 2, 1), identity, atol=1e-4)
    np.testing.assert_allclose(shifts, 0, atol=1e-4)
    angles = np.degrees(np.arctan2(turns[:, 0, 1], turns[:, 0, 0]))
    assert 28 < np.abs(angles).max() <= 30.01 and abs(angles.mean()) < 3
    assert angles.std() == pytest.approx(30 / np.sqrt(3), rel=0.1)


def test_scale_stretches_each_axis_on_its_own():
    actual = maps(AugmentConfig(scale=0.25))
    scales = np.stack([actual[:, 0, 0], actual[:, 1, 1]])
    np.testing.assert_allclose(actual[:, [0, 1], [1, 0]], 0, atol=1e-4)
    assert 1 / 1.251 < scales.min() < 0.82 and 1.22 < scales.max() < 1.251
    assert abs(np.corrcoef(scales)[0, 1]) < 0.15


def test_shift_moves_by_a_fraction_of_the_side():
    actual = maps(AugmentConfig(shift=0.2))
    np.testing.assert_allclose(actual[..., :2], np.eye(2)[None].repeat(400, 0), atol=1e-4)
    assert 0.95 * 0.2 * 21 < np.abs(actual[..., 2]).max() <= 0.2 * 21 + 1e-3
    assert abs(np.corrcoef(actual[..., 2].T)[0, 1]) < 0.15


@pytest.mark.parametrize("sides", [(17, 30), (40, 12)])
def test_maps_lead_from_the_result_to_bilinear_and_nearest_pixels(rng, sides):
    """A formula in NumPy: places beyond the edge are the nearest ones on it."""
    image = rng.normal(size=(*sides, 4)).astype("float32")
    mask = rng.integers(0, 256, sides, dtype="uint8")
    config = AugmentConfig(rotation_degrees=70, scale=0.8, shift=0.3)
    (y, x), last = np.mgrid[: sides[0], : sides[1]], np.array(sides) - 1
    for i in range(5):
        drawn_map = augment.draw_map(generator(i), sides, config)
        places = np.stack([y, x, np.ones(sides)], axis=-1) @ drawn_map.T  # (H, W, 2)
        places = np.clip(places, 0, last)
        low = np.floor(places).astype(int)
        (top, left), (bottom, right) = np.moveaxis([low, np.minimum(low + 1, last)], -1, 1)
        down, across = np.moveaxis(places - low, -1, 0)[..., None]
        upper = (1 - across) * image[top, left] + across * image[top, right]
        lower = (1 - across) * image[bottom, left] + across * image[bottom, right]
        expected = (1 - down) * upper + down * lower
        assert_close(augment.warp(image, drawn_map), expected)
        nearest = np.floor(places + 0.5).astype(int)
        actual = augment.warp_mask(mask, drawn_map)
        assert actual.dtype == np.uint8
        np.testing.assert_array_equal(actual, mask[nearest[..., 0], nearest[..., 1]])
