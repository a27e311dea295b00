"""Batches of features hold the pictures that a run through the model trains on, in its order."""

import ml_dtypes
import numpy as np
import pytest

from vit_keras import data
from vit_keras.config import AugmentConfig
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once
SIZE = {"image_size": (3, 3), "preprocessing": Preprocessing()}
COUNT, CLASSES = 23, 4


@pytest.fixture
def split(rng):
    images = rng.integers(0, 256, (COUNT, 3, 3, 1), dtype="uint8")
    return data.from_arrays(images, rng.integers(0, CLASSES, COUNT))


def flat(images):
    """The features of a picture: its pixels, which tell it from all others."""
    return np.reshape(images, (len(images), -1))


@pytest.fixture
def stored(split, tmp_path):
    batches, sizes = data.eval_batches(split, batch=5, **SIZE), []
    run = lambda images: sizes.append(len(images)) or flat(images)
    data.StoredFeatures.write(tmp_path, run, batches, COUNT)
    assert sizes == [5] * 5  # the last batch has 3 pictures, and is computed as the others are
    return data.StoredFeatures(tmp_path)


def assert_equal(batches, expected):
    for (features, targets), (images, labels) in zip(batches, expected, strict=True):
        np.testing.assert_array_equal(features, flat(images))
        np.testing.assert_array_equal(targets, labels)


@pytest.mark.parametrize("start", [0, 7])
def test_batches_to_train_on_have_the_order_of_the_pictures(split, stored, start):
    """Over several epochs, whose ends are within batches."""
    sequence = {"batch": 6, "seed": 3, "num_classes": CLASSES}
    pictures = data.train_batches(
        split, augment_config=AugmentConfig(), start_step=start, total_steps=13, **SIZE, **sequence
    )
    batches = stored.training(start=start, stop=13, **sequence)
    assert batches[0][0].shape == (6, 9)  # one shape to compile for
    assert_equal(batches, pictures)


def test_held_out_batches_have_all_pictures_once(split, stored):
    pictures = data.eval_batches(split, batch=10, num_classes=CLASSES, **SIZE)
    assert_equal(stored.held_out(batch=10, num_classes=CLASSES), pictures)


def test_features_that_are_not_finite_are_refused(split, tmp_path):
    seen = []

    def run(images):
        seen.append(images)
        return flat(images) / (0.0 if len(seen) == 2 else 1.0)

    batches = data.eval_batches(split, batch=10, **SIZE)
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="pictures 10 to 19. C"):
        data.StoredFeatures.write(tmp_path, run, batches, COUNT)


def test_features_of_tokens_and_of_bfloat16_are_stored_exactly(split, tmp_path, rng):
    rounded = rng.normal(size=(COUNT, 2, 3)).astype(ml_dtypes.bfloat16)
    batches = data.eval_batches(split, batch=COUNT, **SIZE)
    data.StoredFeatures.write(tmp_path, lambda images: rounded, batches, COUNT)
    stored = data.StoredFeatures(tmp_path)
    np.testing.assert_array_equal(stored.features, rounded.astype("float32"))
    ((features, _),) = stored.held_out(batch=COUNT, num_classes=CLASSES)
    assert features.shape == (COUNT, 2, 3)
