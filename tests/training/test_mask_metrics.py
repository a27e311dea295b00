"""The loss and the metrics of masks, beside formulas in NumPy and scikit-learn."""

import keras
import numpy as np
import pytest
from sklearn.metrics import jaccard_score

from tests.reference import log_softmax
from vit_keras.config import Config
from vit_keras.support.tasks import VOID, Task
from vit_keras.training.losses import build_loss
from vit_keras.training.metrics import METRICS

CLASSES = 5


@pytest.fixture
def batch(rng):
    """Logits and masks in which class 3 is neither true nor predicted, and some have no class."""
    logits = 3 * rng.normal(size=(3, 6, 4, CLASSES)).astype("float32")
    logits[..., 3] = -20
    masks = rng.choice([0, 1, 2, 4, VOID], size=(3, 6, 4)).astype("int32")
    masks[1] = VOID  # a whole picture
    return logits, masks


def test_the_loss_is_the_mean_over_the_pixels_that_have_a_class(batch):
    logits, masks = batch
    each = []
    for picture, mask in zip(log_softmax(logits.astype("float64")), masks):
        known = mask != VOID
        each.append(-picture[known, mask[known]].mean() if known.any() else 0.0)
    loss = build_loss(Config(task="masks"), Task("masks"))
    loss = keras.losses.deserialize(keras.losses.serialize(loss))
    assert float(loss(masks, logits)) == pytest.approx(np.mean(each), rel=1e-5)
    weights = np.array([0.5, 1.0, 2.0])
    weighed = float(loss(masks, logits, sample_weight=weights))
    assert weighed == pytest.approx((weights * each).mean(), rel=1e-5)


def test_the_metrics_equal_those_of_scikit_learn_over_batches(batch):
    logits, masks = batch
    known = masks != VOID
    true, predicted = masks[known], logits.argmax(axis=-1)[known]
    expected = {
        "miou": jaccard_score(true, predicted, labels=[0, 1, 2, 4], average="macro"),
        "pixel_accuracy": (true == predicted).mean(),
    }
    for metric in METRICS["masks"](CLASSES):
        metric = type(metric).from_config(metric.get_config())
        for place in range(3):
            metric.update_state(masks[place : place + 1], logits[place : place + 1])
        assert float(metric.result()) == pytest.approx(expected[metric.name], abs=1e-6)
        metric.reset_state()
        weights = np.array([1.0, 1.0, 0.0])  # padding weighs nothing
        metric.update_state(masks, logits, sample_weight=weights)
        one = type(metric).from_config(metric.get_config())
        one.update_state(masks[:2], logits[:2])
        assert float(metric.result()) == pytest.approx(float(one.result()), abs=1e-6)
