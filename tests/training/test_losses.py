"""Compares the losses of a run with their formulas in NumPy."""

import keras
import numpy as np
import pytest

from tests.helpers import assert_close
from vit_keras.config import Config
from vit_keras.training.losses import build_loss


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def softmax_xent(targets, logits, smoothing):
    targets = targets * (1 - smoothing) + smoothing / targets.shape[-1]
    return -(targets * log_softmax(logits)).sum(-1).mean()


def sigmoid_xent(targets, logits, smoothing):
    """-log σ(x) for classes in the image and -log σ(-x) for the others, summed over the classes."""
    positive, negative = np.logaddexp(0, -logits), np.logaddexp(0, logits)
    return (targets * positive + (1 - targets) * negative).sum(-1).mean()


@pytest.mark.parametrize(
    ("name", "smoothing", "reference"),
    [
        ("softmax", 0.0, softmax_xent),
        ("softmax", 0.1, softmax_xent),
        ("sigmoid", 0.0, sigmoid_xent),
    ],
)
def test_losses_equal_the_formulas(rng, name, smoothing, reference):
    logits = 30 * rng.normal(size=(6, 7))
    targets = rng.dirichlet(np.ones(7), 6)  # as MixUp makes them
    loss = build_loss(Config(loss=name, label_smoothing=smoothing))
    loss = keras.losses.deserialize(keras.losses.serialize(loss))
    value = loss(*(keras.ops.convert_to_tensor(x.astype("float32")) for x in (targets, logits)))
    assert_close(value, reference(targets, logits, smoothing))
