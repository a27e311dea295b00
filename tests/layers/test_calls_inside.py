"""On torch a block calls its layers without Keras' work around each call, to the same bits."""

import keras
import numpy as np
import pytest

from tests.helpers import randomise
from vit_keras.keras_internals import sublayers
from vit_keras.layers import BlockOptions, EncoderBlock, Rope

pytestmark = pytest.mark.on("torch")
OPTIONS = {
    "paper": {},
    "DINOv2": {"layer_scale": 0.3},
    "BEiT": {"layer_scale": 0.3, "qkv_bias": "qv"},
    "EVA-02": {
        "qkv_bias": "qv",
        "attention_norm": True,
        "mlp": "swiglu",
        "mlp_norm": True,
        "rope": Rope(),
    },
    "ViT-22B": {"parallel": True, "qk_norm": True, "norm": "rms"},
}


RATES = {
    "all dropouts": {
        "dropout_rate": 0.2,
        "attention_dropout_rate": 0.1,
        "stochastic_depth_rate": 0.3,
    },
    "outside of attention": {"dropout_rate": 0.2, "stochastic_depth_rate": 0.3},
    "no dropout": {},
}


def make(options, dtype, rates):
    options = BlockOptions(**options)
    block = EncoderBlock(2, 24, **rates, grid=(2, 2), options=options, dtype=dtype, seed=5)
    block.build((None, 5, 16))
    randomise(block, np.random.default_rng(1))
    return block


def outputs(block, x, training):
    """The tokens and the gradients of all weights, from the same dropout at every call."""
    for layer in sublayers(block):
        if hasattr(layer, "seed_generator"):
            layer.seed_generator.state.assign(keras.random.SeedGenerator(7).state.value)
    block.zero_grad()
    y = block(keras.ops.convert_to_tensor(x), training=training)
    (y.float() ** 2).sum().backward()
    gradients = [v.value.grad for v in block.trainable_variables]
    return [t.detach().float().numpy().copy() for t in (y, *gradients)]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("rates", RATES.values(), ids=RATES)
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_hook_on_every_layer_changes_no_bit(options, dtype, rates, training, rng):
    """A hook of torch needs the whole call."""
    block, x = make(options, dtype, rates), rng.normal(size=(3, 5, 16)).astype("float32")
    plain, called = outputs(block, x, training), []
    for layer in sublayers(block)[1:]:
        layer.register_forward_hook(lambda layer, *_: called.append(layer.name))
    for a, b in zip(plain, outputs(block, x, training), strict=True):
        np.testing.assert_array_equal(a, b)
    assert {"query", "Dense_1", block.norm_0.name} <= set(called)


def test_large_products_change_no_bit_either(monkeypatch, rng):
    """They may go by another library, and keep less of their MLP for the gradient."""
    from vit_keras.layers.kernels import torch_products

    block, x = make({}, "float32", {}), rng.normal(size=(3, 5, 16)).astype("float32")
    small = outputs(block, x, True)
    monkeypatch.setattr(torch_products, "LARGE", 1)
    monkeypatch.setattr(torch_products, "MANY_UNITS", 1)
    for a, b in zip(small, outputs(block, x, True), strict=True):
        np.testing.assert_array_equal(a, b)
