"""What is promised of exported files, on made-up outputs, and the images they are compared on."""

from types import SimpleNamespace

import numpy as np
import pytest

from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data import from_arrays
from vit_keras.exporting import verification
from vit_keras.models import Preprocessing
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.once  # no Keras


def test_a_broken_promise_is_reported_with_its_numbers():
    expected = np.eye(4, dtype="float32")[[0, 1, 2, 3] * 50]  # 200 images
    labels = expected.argmax(axis=-1)
    near = verification.compare(expected + 9e-5, expected, "logits", labels)
    assert near["largest_difference"] == pytest.approx(9e-5, rel=1e-3) and near["accuracy"] == 1
    assert verification.broken_promise("fp32", near, 1.0) is None
    far = verification.compare(expected + 0.02, expected, "logits")
    assert verification.broken_promise("fp16", far, None) == (
        "largest difference of a logit 0.02 on 200 images; it must be at most 0.01"
    )
    flipped = expected.copy()
    flipped[:2] = flipped[:2, ::-1]  # two images of 200 get another class
    row = verification.compare(flipped, expected, "logits", labels)
    assert row["agreement"] == row["accuracy"] == 0.99
    assert verification.broken_promise("int8", {**row, "accuracy": 0.996}, 1.0) is None
    message = verification.broken_promise("int8", row, 1.0)
    assert message == "loss of accuracy 0.01 on 200 images; it must be at most 0.005"
    broken = verification.compare(expected * np.nan, expected, "logits")
    assert "largest difference of a logit nan" in verification.broken_promise("int8", broken, None)


def test_probabilities_are_compared_as_logits(rng):
    logits = rng.normal(size=(6, 5))
    moved = logits + [[0.3, 0, 0, 0, 0]]
    log = lambda x: x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
    row = verification.compare(np.exp(log(moved)), np.exp(log(logits)), "softmax")
    assert row["largest_difference"] == pytest.approx(np.abs(log(moved) - log(logits)).max())


@pytest.mark.parametrize("output", ["sigmoid", "logits"])
def test_labels_are_judged_at_their_own_thresholds(rng, output):
    thresholds = (0.02, 0.5, 0.9, 0.0, 1.0)
    logits = rng.normal(np.array([-4, 0, 2, 0, 0]), 1, (400, 5)).astype("float32")
    moved = (logits + 0.3 * rng.normal(size=logits.shape)).astype("float32")
    labels = (rng.random(logits.shape) < 0.5).astype("float32")
    labels[rng.random(labels.shape) < 0.2] = np.nan
    task, known = Task("labels", thresholds=thresholds), ~np.isnan(labels)
    probabilities = [1 / (1 + np.exp(-x)) for x in (moved, logits)]
    answers, expected = (x >= np.array(thresholds, "float32") for x in probabilities)
    outputs = probabilities if output == "sigmoid" else (moved, logits)
    row = verification.compare(*outputs, output, labels, task)
    assert row["agreement"] == pytest.approx((answers == expected).mean())
    assert row["accuracy"] == pytest.approx((answers == labels)[known].mean())
    message = verification.broken_promise("int8", row, None)  # at 0.5, almost all would agree
    assert message.startswith(f"same labels {row['agreement']:.5g} on 400 images")


def test_features_are_compared_by_their_angle_and_the_first_token_too(rng):
    """A class token with a cosine of 0.98 is one of 101 tokens whose mean cosine is higher."""
    expected = rng.normal(size=(8, 101, 64))
    expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    other = rng.normal(size=(8, 64))
    first = expected[:, 0]
    other -= (other * first).sum(axis=-1, keepdims=True) * first
    outputs = expected.copy()
    outputs[:, 0] = 0.98 * first + 0.199 * other / np.linalg.norm(other, axis=-1, keepdims=True)
    row = verification.compare(outputs, expected, "features")
    assert row["agreement"] == pytest.approx(1 - 0.02 / 101, abs=1e-5)
    message = verification.broken_promise("int8", row, None)
    assert message.startswith("agreement of the first token 0.98 on 8 images")
    row = verification.compare(outputs[:, 1:], expected[:, 1:], "features")
    assert verification.broken_promise("int8", row, None) is None


def test_images_come_from_all_of_a_sorted_split():
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    chosen = verification.spread(from_arrays(labels, labels), 100)
    assert (np.diff(chosen) > 0).all()
    np.testing.assert_allclose(np.bincount(labels[chosen]), [60, 30, 10], atol=15)
    np.testing.assert_array_equal(chosen, verification.spread(from_arrays(labels, labels), 100))


def test_images_and_labels_belong_together():
    preprocessing, config = Preprocessing(mean=(0.3,), std=(0.2,)), DataConfig()
    model = SimpleNamespace(input_shape=(None, 16, 16, 1), preprocessing=preprocessing)
    images, labels = verification.from_dataset("digits", model, 70, config)
    split = data.load("digits", 1, config).split(config.test_split)
    indices = verification.spread(split, 70)
    np.testing.assert_array_equal(labels, split.labels[indices])
    sizes = [(16, 16), preprocessing]
    expected = [np.round(data.resize(split.read(i), *sizes)) for i in indices]
    np.testing.assert_array_equal(images, np.stack(expected).astype("uint8"))
