"""Attention on torch, written out in bfloat16 too, against its formula in float64."""

import numpy as np
import pytest

from tests import reference
from tests.helpers import assert_close, to_numpy
from vit_keras.layers import MultiHeadDotProductAttention, backends
from vit_keras.layers.attention import fused_attention

pytestmark = pytest.mark.on("torch")


@pytest.fixture(autouse=True)
def written_out(default_choices):
    backends.use({"torch_attention": {"written_out": True}})


def with_gradients(attend, values, gradient, dtype):
    """The output `(B, N, H, d)` and the gradients to q, k and v, in float64."""
    import torch

    tensors = [torch.tensor(v, dtype=dtype, requires_grad=True) for v in values]
    y = attend(*tensors, values[0].shape[-1] ** -0.5)
    results = (y, *torch.autograd.grad(y, tensors, torch.tensor(gradient, dtype=dtype)))
    return [x.detach().double().numpy() for x in results]


def written_in_float64(query, key, value, scale):
    import torch

    weights = torch.softmax(torch.einsum("bnhd,bmhd->bhnm", query, key) * scale, -1)
    return torch.einsum("bhnm,bmhd->bnhd", weights, value)


@pytest.mark.parametrize("queries, keys", [(9, 9), (1, 9)])
def test_attention_and_its_gradients_equal_the_formula(rng, queries, keys):
    import torch

    values = [2 * rng.normal(size=(2, n, 3, 40)) for n in (queries, keys, keys)]
    values = [torch.tensor(v).bfloat16().double().numpy() for v in values]
    gradient = rng.normal(size=values[0].shape)
    results = with_gradients(fused_attention, values, gradient, torch.bfloat16)
    expected = with_gradients(written_in_float64, values, gradient, torch.float64)
    for one, other in zip(results, expected):
        assert np.linalg.norm(one - other) <= 0.02 * np.linalg.norm(other)


@pytest.mark.parametrize("chosen", (False, True))
@pytest.mark.parametrize("dtype, rtol", [("float32", 4e-6), ("mixed_bfloat16", 0.015)])
def test_the_layer_gives_the_formula_by_either_choice(rng, dtype, rtol, chosen):
    backends.use({"torch_attention": {"written_out": chosen}})
    x = rng.normal(size=(2, 5, 12)).astype("float32")
    layer = MultiHeadDotProductAttention(3, seed=0, dtype=dtype)
    layer.build(x.shape)
    for weight in layer.weights:
        weight.assign(rng.normal(0, 0.3, weight.shape))
    y = to_numpy(layer(x)).astype("float32")
    assert_close(y, expected_of(layer, x), rtol)


def expected_of(layer, x):
    weights = {}
    for name in ("query", "key", "value", "out"):
        projection = getattr(layer, name)
        weights[f"a/{name}/kernel"] = to_numpy(projection.kernel)
        weights[f"a/{name}/bias"] = to_numpy(projection.bias)
    return reference.attention(x, x, weights, "a")[0]
