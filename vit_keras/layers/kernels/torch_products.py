"""Products of rows and kernels on torch, by the library that is faster on this machine.

On CPUs torch multiplies float32 by MKL, which on some processors reaches half of what oneDNN does;
torch has both. Which one is faster is asked for the product and for each of its two gradients.
"""

import functools
import math
from typing import NamedTuple

import torch
from keras.ops import convert_to_tensor
from torch.autograd.function import once_differentiable

from vit_keras.layers.dense import gelu, gelu_tanh
from vit_keras.layers.kernels import torch_measured

LARGE = 2**25  # multiply-adds from which a product outweighs what calling it costs
FUSED = {gelu: ("gelu", [], "none"), gelu_tanh: ("gelu", [], "tanh")}  # oneDNN's and torch's names


class Routes(NamedTuple):
    """Which products go to oneDNN: x w + b, its gradient to x, and that to w."""

    forward: bool = False
    inputs: bool = False
    kernel: bool = False


def linear(x, kernel, bias, activation=None):
    """activation(x kernel + bias) of tensors `(…, *K)`, `(*K, *N)` and `(*N,)`: `(…, *N)`."""
    summed = kernel.dim() - bias.dim()
    outer, size = x.shape[: x.dim() - summed], math.prod(kernel.shape[:summed])
    y = _rows(x.reshape(-1, size), kernel.reshape(size, -1), bias.reshape(-1), activation)
    return y.reshape(*outer, *bias.shape)


def mlp(x, first, second):
    """second(first(x)) of two `Dense` layers in training, `(…, D)` -> `(…, D)`.

    On CPUs it keeps of the hidden units what goes into GELU alone: that is computed anew for the
    gradient, which takes half a hundredth of a step and saves a sixth of its memory.
    """
    gelu = first.activation
    first, second = (map(convert_to_tensor, (part.kernel, part.bias)) for part in (first, second))
    if gelu not in FUSED or not torch.is_grad_enabled() or not torch_measured.concerns(x):
        return linear(linear(x, *first, gelu), *second)
    hidden, (kernel, bias) = linear(x, *first).flatten(0, -2), second
    y = _Linear.apply(hidden, kernel, bias, _routes_of(hidden, kernel), gelu)
    return y.reshape(*x.shape[:-1], -1)


def _rows(x, kernel, bias, activation):
    """Of `(M, K)`, `(K, N)` and `(N,)`: `(M, N)`."""
    routes, training = _routes_of(x, kernel), torch.is_grad_enabled()
    if routes.forward and not training and activation in FUSED:
        return _onednn(x, kernel, bias, FUSED[activation])
    if any(routes) and training:
        x = _Linear.apply(x, kernel, bias, routes)
    else:
        x = _forward(x, kernel, bias, routes)
    return x if activation is None else activation(x)


def _routes_of(x, kernel) -> Routes:
    large = x.shape[0] * kernel.shape[0] * kernel.shape[1] >= LARGE
    if not large or not torch_measured.concerns(x):
        return Routes()
    if x.dtype == kernel.dtype == torch.float32:
        return fastest()
    return Routes(forward=x.dtype == kernel.dtype == torch.bfloat16 and _has_bfloat16())


@functools.cache
def _has_bfloat16() -> bool:
    """Whether oneDNN has products in bfloat16 here; torch's own are the same."""
    return _has_onednn() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _onednn(x, kernel, bias=None, activation=("none", [], "")):
    return torch.ops.mkldnn._linear_pointwise(x, kernel.t(), bias, *activation)


def _forward(x, kernel, bias, routes):
    if routes.forward:
        return _onednn(x, kernel, bias)
    return torch.nn.functional.linear(x, kernel.t(), bias)


class _Linear(torch.autograd.Function):
    """x kernel + bias, or gelu(x) kernel + bias, which keeps x alone."""

    @staticmethod
    def forward(context, x, kernel, bias, routes, gelu=None):
        context.save_for_backward(x, kernel)
        context.routes, context.gelu = routes, gelu
        return _forward(gelu(x) if gelu else x, kernel, bias, routes)

    @staticmethod
    @once_differentiable
    def backward(context, gradient):
        x, kernel = context.saved_tensors
        (wants_x, wants_kernel, wants_bias, *_), gelu = context.needs_input_grad, context.gelu
        gradient, routes = gradient.contiguous(), context.routes
        x_gradient = kernel_gradient = None
        if wants_kernel:
            kernel_gradient = _kernel_gradient(gelu(x) if gelu else x, gradient, routes)
        if wants_x:
            multiply = _onednn if routes.inputs else torch.mm
            x_gradient = multiply(gradient, kernel.t())
        if wants_x and gelu:
            into = {"approximate": FUSED[gelu][2], "grad_input": x_gradient}
            torch.ops.aten.gelu_backward.grad_input(x_gradient, x, **into)
        return x_gradient, kernel_gradient, gradient.sum(0) if wants_bias else None, None, None


def _kernel_gradient(x, gradient, routes):
    """xᵀ g of `(M, K)` and `(M, N)`: oneDNN copies what it transposes, so that is the narrower."""
    if not routes.kernel:
        return torch.mm(x.t(), gradient)
    if x.shape[1] > gradient.shape[1]:
        return _onednn(gradient.t(), x).t().contiguous()
    return _onednn(x.t(), gradient)


@functools.cache
def fastest() -> Routes:
    """The faster routes on this machine: what was measured before, or measured now."""
    return torch_measured.kept("products", Routes, measure) if _has_onednn() else Routes()


def measure(rows=2048, hidden_size=384, mlp_dim=1536, rounds=5) -> Routes:
    """Times both libraries in turns on a block's six products, in a second or two."""
    mlp_shapes = (hidden_size, mlp_dim), (mlp_dim, hidden_size)
    shapes, pairs = [(hidden_size, hidden_size)] * 4 + [*mlp_shapes], ([], [], [])
    for width, outputs in shapes:
        x, kernel, gradient = (
            torch.linspace(-1, 1, a * b).reshape(a, b)
            for a, b in ((rows, width), (width, outputs), (rows, outputs))
        )
        for found, pair in zip(pairs, ((x, kernel), (gradient, kernel.t()), (x, gradient))):
            found.append(pair)
    kernels = [
        functools.partial(_kernel_gradient, routes=Routes(kernel=onednn))
        for onednn in (True, False)
    ]
    contests = zip(((_onednn, torch.mm), (_onednn, torch.mm), kernels), pairs)
    with torch.no_grad():
        return Routes(*(torch_measured.is_faster(*two, found, rounds) for two, found in contests))
