"""The choices between implementations: measured on request, recorded, and used again."""

import json

import keras
import numpy as np
import pytest

from tests.helpers import randomize, to_numpy
from vit_keras.layers import EncoderBlock, backends

pytestmark = pytest.mark.usefixtures("default_choices")


def a_step(choices):
    """The losses of three updates of a block, and its weights, bit by bit."""
    backends.use(choices)
    x = np.random.default_rng(1).normal(size=(4, 200, 128)).astype("float32")
    inputs = keras.Input((200, 128))
    model = keras.Model(inputs, EncoderBlock(4, 512, seed=1)(inputs))
    randomize(model, np.random.default_rng(0))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    losses = [model.train_on_batch(x, -x) for _ in range(3)]
    return [np.asarray(losses), *(to_numpy(weight) for weight in model.weights)]


@pytest.mark.on("torch")
def test_choices_that_are_recorded_and_used_again_give_the_same_bits():
    from vit_keras.layers.backends import torch

    products = dict.fromkeys(("forward", "inputs", "kernel"), torch.has_onednn())
    recorded = json.dumps({"torch_products": products, "torch_attention": {"written_out": True}})
    first = a_step(json.loads(recorded))
    a_step({})
    again = a_step(json.loads(recorded))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
