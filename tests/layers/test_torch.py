"""On torch: the products of its two libraries and attention written out, against formulas."""

import json

import keras
import numpy as np
import pytest

from tests import reference
from tests.helpers import assert_close, keeping, randomize, to_numpy
from vit_keras.layers import EncoderBlock, MlpBlock, backends, base
from vit_keras.layers.attention import fused_attention

torch = pytest.importorskip("torch")
own = pytest.importorskip("vit_keras.layers.backends.torch")

pytestmark = pytest.mark.on("torch")


@pytest.fixture(autouse=True)
def small_products_count(request, monkeypatch):
    """Products as small as those of a test go the way that was chosen for large ones."""
    monkeypatch.setattr(own, "LARGE", 1)
    monkeypatch.setattr(own, "MANY_UNITS", 1)
    request.addfinalizer(lambda: backends.use({}))


def use(by_onednn):
    by_onednn = {"float32": by_onednn, "bfloat16": by_onednn and own.has_onednn_bfloat16()}
    backends.use({"torch_products": by_onednn})


@pytest.mark.parametrize("widths", [(5, 4), (4, 5)])  # x is copied, or its gradient
@pytest.mark.parametrize("by_onednn", [False, True])
def test_both_libraries_give_the_product_and_its_gradients(rng, by_onednn, widths):
    use(by_onednn)
    shapes = (7, widths[0]), widths, widths[1:], (7, widths[1])
    x, kernel, bias, gradient = (rng.normal(size=s) for s in shapes)
    tensors = [torch.tensor(v, dtype=torch.float32, requires_grad=True) for v in (x, kernel, bias)]
    y = base.linear(*tensors)
    y.backward(torch.tensor(gradient, dtype=torch.float32))
    assert_close(y, x @ kernel + bias, rtol=2e-6)
    expected = (gradient @ kernel.T, x.T @ gradient, gradient.sum(0))
    for tensor, value in zip(tensors, expected):
        assert_close(tensor.grad, value)
        assert tensor.grad.is_contiguous()


@pytest.mark.parametrize("gelu", base.GELUS)
def test_a_fused_gelu_equals_the_one_in_training(rng, gelu):
    use(by_onednn=True)
    mlp = MlpBlock(10, gelu=gelu)
    mlp.build((2, 6, 12))
    x = rng.normal(size=(2, 6, 12)).astype("float32")
    for weight in mlp.weights:
        weight.assign(rng.normal(size=weight.shape))
    first, second = ((to_numpy(d.kernel), to_numpy(d.bias)) for d in (mlp.dense_0, mlp.dense_1))
    expected = reference.gelu(x @ first[0] + first[1], gelu) @ second[0] + second[1]
    assert_close(mlp(x), expected)
    with torch.no_grad():
        assert_close(mlp(x), expected)
        half = [torch.tensor(v).bfloat16() for v in (x[0], *first)]
        output = base.linear(*half, base.GELUS[gelu]).float()
    exact = reference.gelu(x[0] @ first[0] + first[1], gelu)
    assert_close(output, exact, rtol=1e-2)


@pytest.mark.parametrize("by_onednn", [False, True])
@pytest.mark.parametrize("gelu", ["exact", "tanh"])
def test_training_keeps_only_the_input_of_gelu(rng, gelu, by_onednn):
    use(by_onednn)
    mlp = MlpBlock(10, gelu=gelu)
    mlp.build((2, 6, 4))
    for weight in mlp.weights:
        weight.assign(rng.normal(size=weight.shape))
    x, gradient = (rng.normal(size=(2, 6, 4)) for _ in range(2))
    inputs, kept = torch.tensor(x, dtype=torch.float32, requires_grad=True), {}
    with keeping(kept):
        y = mlp(inputs, training=True)
    assert sum(t.shape == (12, 10) for t in kept.values()) == 1
    y.backward(torch.tensor(gradient, dtype=torch.float32))
    gradients = [inputs.grad, *(weight.value.grad for weight in mlp.trainable_weights)]

    values = [torch.tensor(to_numpy(w)).double() for w in (x, *mlp.trainable_weights)]
    values = [value.requires_grad_() for value in values]
    hidden = values[0] @ values[1] + values[2]
    hidden = torch.nn.functional.gelu(hidden, approximate={"exact": "none"}.get(gelu, gelu))
    output = hidden @ values[3] + values[4]
    assert_close(y, output.detach())
    expected = torch.autograd.grad(output, values, torch.tensor(gradient))
    for one, other in zip(gradients, expected, strict=True):
        assert_close(one, other)


def losses_of(choices):
    """The losses of three updates of a block with these choices, and its weights, bit by bit."""
    backends.use(choices)
    x = np.random.default_rng(1).normal(size=(4, 50, 48)).astype("float32")
    inputs = keras.Input(x.shape[1:])
    model = keras.Model(inputs, EncoderBlock(4, 64, rematerialize=True, seed=1)(inputs))
    randomize(model, np.random.default_rng(0), scale=0.1)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    losses = [model.train_on_batch(x, -x) for _ in range(3)]
    return [np.asarray(losses), *(to_numpy(weight) for weight in model.weights)]


def test_a_block_trains_alike_by_both_libraries_and_recorded_choices_give_the_same_bits():
    products = {"float32": own.has_onednn()}
    recorded = json.dumps({"torch_products": products, "torch_attention": {"written_out": True}})
    first, others, again = (losses_of(json.loads(x)) for x in (recorded, "{}", recorded))
    assert_close(first[0], others[0])
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


def with_gradients(attend, values, gradient, dtype):
    """The output `(B, N, H, d)` and the gradients to q, k and v, in float64."""
    tensors = [torch.tensor(v, dtype=dtype, requires_grad=True) for v in values]
    y = attend(*tensors, values[0].shape[-1] ** -0.5)
    results = (y, *torch.autograd.grad(y, tensors, torch.tensor(gradient, dtype=dtype)))
    return [x.detach().double().numpy() for x in results]


def written_in_float64(query, key, value, scale):
    weights = torch.softmax(torch.einsum("bnhd,bmhd->bhnm", query, key) * scale, -1)
    return torch.einsum("bhnm,bmhd->bnhd", weights, value)


@pytest.mark.parametrize("queries, keys", [(9, 9), (1, 9)])
def test_attention_and_its_gradients_equal_the_formula(rng, queries, keys):
    backends.use({"torch_attention": {"written_out": True}})
    values = [2 * rng.normal(size=(2, n, 3, 40)) for n in (queries, keys, keys)]
    values = [torch.tensor(v).bfloat16().double().numpy() for v in values]
    gradient = rng.normal(size=values[0].shape)
    results = with_gradients(fused_attention, values, gradient, torch.bfloat16)
    expected = with_gradients(written_in_float64, values, gradient, torch.float64)
    for one, other in zip(results, expected):
        assert np.linalg.norm(one - other) <= 0.02 * np.linalg.norm(other)
