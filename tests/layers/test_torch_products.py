"""The products of torch's two libraries, against NumPy."""

import itertools

import keras
import numpy as np
import pytest

from tests import reference
from tests.helpers import assert_close, keeping, randomize, to_numpy
from vit_keras.layers import EncoderBlock, MlpBlock, backends, base

pytestmark = pytest.mark.on("torch")


@pytest.fixture(autouse=True)
def small_products_count(monkeypatch, default_choices):
    """Products as small as those of a test go the way that was chosen for large ones."""
    from vit_keras.layers.backends import torch as own

    monkeypatch.setattr(own, "LARGE", 1)
    monkeypatch.setattr(own, "MANY_UNITS", 1)


def use(routes, bfloat16=False):
    options = dict(zip(("forward", "inputs", "kernel"), routes))
    backends.use({"torch_products": {**options, "bfloat16": bfloat16}})


ROUTES = list(itertools.product((False, True), repeat=3))

SHAPES = {
    "wide": ((7, 5), (5, 4), (4,), (7, 4)),  # x is copied to be transposed, or its gradient
    "narrow": ((7, 4), (4, 5), (5,), (7, 5)),
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("routes", ROUTES)
def test_every_route_gives_the_product_and_its_gradients(rng, routes, shapes):
    import torch

    use(routes)
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
    import torch

    from vit_keras.layers.backends import torch as own

    use(ROUTES[-1], bfloat16=own.has_onednn_bfloat16())
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


@pytest.mark.parametrize("routes", [ROUTES[0], ROUTES[-1]])
@pytest.mark.parametrize("gelu", ["exact", "tanh"])
def test_training_keeps_only_the_input_of_gelu(rng, gelu, routes):
    import torch

    use(routes)
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

    exact = [torch.tensor(to_numpy(w)).double().requires_grad_() for w in mlp.trainable_weights]
    values = [torch.tensor(x, requires_grad=True), *exact]
    hidden = values[0] @ exact[0] + exact[1]
    approximate = "none" if gelu == "exact" else "tanh"
    output = torch.nn.functional.gelu(hidden, approximate=approximate) @ exact[2] + exact[3]
    assert_close(y, output.detach())
    expected = torch.autograd.grad(output, values, torch.tensor(gradient))
    for one, other in zip(gradients, expected, strict=True):
        assert_close(one, other)


def test_a_block_trains_alike_by_both_libraries(rng):
    x = rng.normal(size=(2, 6, 12)).astype("float32")
    losses = []
    for routes in (ROUTES[0], ROUTES[-1]):
        use(routes)
        inputs = keras.Input((6, 12))
        model = keras.Model(inputs, EncoderBlock(3, 10, rematerialize=True, seed=1)(inputs))
        model = randomize(model, np.random.default_rng(0))
        model.compile(keras.optimizers.SGD(0.1), "mse")
        losses.append([model.train_on_batch(x, -x) for _ in range(3)])
    assert_close(*losses)
