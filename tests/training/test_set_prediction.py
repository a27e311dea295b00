"""The loss of detectors, beside transformers', and detectors that learn by it."""

import types

import keras
import numpy as np
import pytest
from keras import ops

from tests.helpers import assert_close, to_numpy
from tests.peers import peer
from vit_keras import models
from vit_keras.layers.backends import lookup
from vit_keras.training import SetPrediction

JIT = False if keras.backend.backend() == "tensorflow" else "auto"


def draw(rng, batch=3, tokens=7, classes=4, objects=5):
    """Targets of 0 to M objects, in any order with rows of no object, and predictions."""
    centers, sizes = rng.uniform(0.2, 0.8, (2, batch, objects, 2))
    labels = rng.integers(0, classes, (batch, objects))
    labels[rng.uniform(size=labels.shape) < 0.4] = -1
    labels[0] = -1  # an image without objects
    y_true = np.concatenate([labels[..., None], centers, sizes * 0.5], axis=-1)
    boxes = rng.uniform(0.1, 0.6, (batch, tokens, 4))
    y_pred = np.concatenate([rng.normal(size=(batch, tokens, classes + 1)), boxes], axis=-1)
    return y_true.astype("float32"), y_pred.astype("float32")


def expected(y_true, y_pred, weights):
    """The loss and its gradient by transformers, on torch."""
    torch = pytest.importorskip("torch")
    peer("transformers")
    from transformers.loss.loss_for_object_detection import ForObjectDetectionLoss

    config = types.SimpleNamespace(
        class_cost=weights[0],
        bbox_cost=weights[1],
        giou_cost=weights[2],
        num_labels=y_pred.shape[-1] - 5,
        eos_coefficient=weights[3],
        bbox_loss_coefficient=weights[1],
        giou_loss_coefficient=weights[2],
        auxiliary_loss=False,
    )
    outputs = torch.from_numpy(y_pred).requires_grad_()
    labels = [
        {
            "class_labels": torch.from_numpy(rows[rows[:, 0] >= 0][:, 0]).long(),
            "boxes": torch.from_numpy(rows[rows[:, 0] >= 0][:, 1:]),
        }
        for rows in y_true
    ]
    loss, *_ = ForObjectDetectionLoss(outputs[..., :-4], labels, "cpu", outputs[..., -4:], config)
    loss.backward()
    return loss.item(), outputs.grad.numpy()


@pytest.mark.parametrize("weights", [(1.0, 5.0, 2.0, 0.1), (1.0, 2.0, 3.0, 0.5)])
def test_loss_and_gradient_are_those_of_transformers(rng, weights):
    y_true, y_pred = draw(rng)
    value, gradient = expected(y_true, y_pred, weights)
    loss = SetPrediction(*weights)
    function = lambda outputs: loss(ops.convert_to_tensor(y_true), outputs)
    assert_close(to_numpy(function(ops.convert_to_tensor(y_pred))), value, rtol=1e-5)
    (actual,) = lookup("gradients")(function, [ops.convert_to_tensor(y_pred)])
    assert_close(to_numpy(actual), gradient, rtol=1e-5)


@pytest.mark.nightly_on("tensorflow")
@pytest.mark.parametrize("head", ["tokens", pytest.param("patches", marks=pytest.mark.on("torch"))])
def test_a_detector_learns_to_find_a_square(rng, head):
    count = 16
    images, y_true = np.zeros((count, 24, 24, 3), "float32"), np.full((count, 2, 5), -1, "float32")
    for image, rows in zip(images, y_true):
        top, left = 6 * rng.integers(0, 3, 2)
        image[top : top + 12, left : left + 12] = 1
        rows[1] = [1, (left + 6) / 24, (top + 6) / 24, 0.5, 0.5]
    base = models.VisionTransformer(24, 6, 24, 2, 2, 48, num_classes=3, seed=1)
    model = models.detector(base, num_classes=2, head=head, num_tokens=4, seed=1)
    joined = models.with_joined_boxes(model)
    joined.compile(keras.optimizers.Adam(3e-3), SetPrediction(), jit_compile=JIT)
    losses = joined.fit(images, y_true, batch_size=16, epochs=50, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    outputs = {name: to_numpy(x) for name, x in model(images).items()}
    best = outputs["logits"][..., 1].argmax(axis=1)  # the token of the square's class
    boxes = outputs["boxes"][np.arange(count), best]
    assert np.abs(boxes - y_true[:, 1, 1:]).mean() < 0.12
