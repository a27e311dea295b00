"""The choices between implementations: measured on request, recorded, and used again."""

import json

import keras
import numpy as np
import pytest

from tests.helpers import randomize, to_numpy
from vit_keras.layers import EncoderBlock, backends
from vit_keras.layers.backends import DEFAULTS

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


def test_what_is_measured_is_plain_json_with_the_names_of_the_defaults():
    measured = backends.measure()
    assert json.loads(json.dumps(measured)) == measured
    assert {name: set(options) for name, options in measured.items()} == {
        name: set(options) for name, options in backends.chosen().items()
    }
    assert all(type(v) is bool for options in measured.values() for v in options.values())
    assert backends.chosen() == DEFAULTS[keras.backend.backend()]


@pytest.mark.parametrize(
    "mapping",
    [
        {"colors": {"new": True}},
        {"torch_products": {"sideways": True}},
        {"torch_attention": {"written_out": 1}},
        {"long_sequences": {"from_512": 1}},
        {"torch_attention": True},
        [],
    ],
    ids=str,
)
def test_unknown_choices_are_refused_and_change_nothing(mapping):
    before = backends.chosen()
    with pytest.raises(ValueError, match="Received"):
        backends.use(mapping)
    assert backends.chosen() == before


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


@pytest.mark.on("torch")
def test_measuring_tells_a_slow_product_from_a_fast_one():
    import torch

    from vit_keras.layers.backends import is_faster

    slow = lambda a, b: [torch.mm(a, b) for _ in range(20)]
    operands = [(torch.ones(200, 300), torch.ones(300, 200))]
    assert is_faster(torch.mm, slow, operands, 3)
    assert not is_faster(slow, torch.mm, operands, 3)


@pytest.mark.on("torch")
def test_choices_that_this_machine_cannot_run_are_refused(monkeypatch):
    from vit_keras.layers.backends import torch

    monkeypatch.setattr(torch, "has_onednn_bfloat16", lambda: False)
    with pytest.raises(ValueError, match="bfloat16 on a machine without"):
        backends.use({"torch_products": {"bfloat16": True}})
    assert not backends.chosen()["torch_products"]["bfloat16"]
