"""Products of rows and kernels on torch, by either of the libraries that torch has.

On CPUs torch multiplies float32 by MKL, which on some processors reaches half of oneDNN's speed;
torch has both. `choices` says which one computes the product and each of its two gradients.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.autograd.function import once_differentiable

from vit_keras.layers.kernels import choices, torch_choices
from vit_keras.layers.kernels.activations import gelu, gelu_tanh
from vit_keras.layers.kernels.timing import is_faster
from vit_keras.layers.kernels.torch_calls import value_of
from vit_keras.layers.kernels.torch_settled import has_hook

LARGE = 2**25  # multiply-adds from which a product outweighs the cost of the call
MANY_UNITS = 2**21  # of a layer: fewer than 8 MB are kept for the gradient
# The names of oneDNN and torch.
FUSED: dict[Callable, tuple[str, list, str]] = {
    gelu: ("gelu", [], "none"),
    gelu_tanh: ("gelu", [], "tanh"),
}


class Routes(NamedTuple):
    """Which products oneDNN computes: x w + b, its gradient to x, and its gradient to w."""

    forward: bool = False
    inputs: bool = False
    kernel: bool = False


def linear(x, kernel, bias, activation=None):
    """activation(x kernel + bias) of tensors `(…, *K)`, `(*K, *N)` and `(*N,)`: `(…, *N)`."""
    x, kernel = value_of(x), value_of(kernel)
    bias = None if bias is None else value_of(bias)
    if kernel.dim() == 2:
        y = rows_product(x.reshape(-1, kernel.shape[0]), kernel, bias, activation)
        return y.reshape(*x.shape[:-1], kernel.shape[1])
    summed = 1 if bias is None else kernel.dim() - bias.dim()
    outer, size = x.shape[: x.dim() - summed], math.prod(kernel.shape[:summed])
    flat = None if bias is None else bias.reshape(-1)
    y = rows_product(x.reshape(-1, size), kernel.reshape(size, -1), flat, activation)
    return y.reshape(*outer, *kernel.shape[summed:])


def mlp(x, first, second):
    """second(first(x)) of two `Dense` layers in training, `(…, D)` -> `(…, D)`."""
    if has_hook(first) or has_hook(second):
        return second(first(x, training=True), training=True)
    (kernel_0, bias_0), (kernel_1, bias_1) = (
        (value_of(layer.kernel), value_of(layer.bias)) for layer in (first, second)
    )
    return mlp_of_tensors(x, (kernel_0, bias_0), (kernel_1, bias_1), first.activation)


def mlp_of_tensors(x, first, second, gelu):
    """The same of two pairs of a kernel and a bias, and the activation between them.

    On CPUs only the input of GELU is kept of many hidden units. The gradient computes GELU again,
    which takes 0.5 % of a step and saves a sixth of its memory.
    """
    units = x.numel() // x.shape[-1] * first[0].shape[1]
    is_kept = units < MANY_UNITS or not torch.is_grad_enabled()
    if is_kept or gelu not in FUSED or not torch_choices.concerns(x):
        hidden = linear(x, first[0], first[1], gelu)
        return linear(hidden, *second)
    hidden = linear(x, *first).flatten(0, -2)
    y = _Linear.apply(hidden, *second, _routes_of(hidden, second[0]), gelu)
    return y.reshape(*x.shape[:-1], -1)


def rows_product(x, kernel, bias, activation=None):
    """activation(x kernel + bias) of `(M, K)`, `(K, N)` and `(N,)`: `(M, N)`."""
    routes, training = _routes_of(x, kernel), torch.is_grad_enabled()
    if routes.forward and not training and activation in FUSED:
        return _onednn(x, kernel, bias, FUSED[activation])
    if any(routes) and training:
        x = _Linear.apply(x, kernel, bias, routes)
    else:
        x = _forward(x, kernel, bias, routes)
    return x if activation is None else activation(x)


def own_product(x, kernel, bias, activation=None):
    """The same by torch's own product, in few calls."""
    y = torch.mm(x, kernel) if bias is None else torch.addmm(bias, x, kernel)
    if activation is None:
        return y
    if activation in FUSED:
        return torch.nn.functional.gelu(y, approximate=FUSED[activation][2])
    return activation(y)


def are_routed(x, rows: int, kernel) -> bool:
    """Whether `rows_product` of so many rows may take another library than torch's own."""
    return rows * kernel.numel() >= LARGE and torch_choices.concerns(x)


def _routes_of(x, kernel) -> Routes:
    if not torch_choices.concerns(x) or x.dtype != kernel.dtype:
        return Routes()
    if x.shape[0] * kernel.shape[0] * kernel.shape[1] < LARGE:
        return Routes()
    options = choices.options_of("torch_products")
    if x.dtype == torch.float32:
        return Routes(options["forward"], options["inputs"], options["kernel"])
    return Routes(forward=x.dtype == torch.bfloat16 and options["bfloat16"])


def _onednn(x, kernel, bias=None, activation=("none", [], "")):
    return torch.ops.mkldnn._linear_pointwise(x, kernel.t(), bias, *activation)


def _forward(x, kernel, bias, routes):
    if routes.forward:
        return _onednn(x, kernel, bias)
    return torch.nn.functional.linear(x, kernel.t(), bias)


class _Linear(torch.autograd.Function):
    """x kernel + bias, or gelu(x) kernel + bias; x is kept for the gradient, gelu(x) is not."""

    @staticmethod
    def forward(context, x, kernel, bias, routes, gelu=None):
        kept = x if gelu or context.needs_input_grad[1] else None  # a frozen kernel needs none
        context.save_for_backward(kept, kernel)
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
    """xᵀ g of `(M, K)` and `(M, N)`; oneDNN copies what it transposes, so the narrower one is."""
    if not routes.kernel:
        return torch.mm(x.t(), gradient)
    if x.shape[1] > gradient.shape[1]:
        return _onednn(gradient.t(), x).t().contiguous()
    return _onednn(x.t(), gradient)


def measure(rows=2048, hidden_size=384, mlp_dim=1536, rounds=5) -> dict[str, bool]:
    """Times both libraries in turns on the six products of a block, in a second or two.

    Returns:
        Whether oneDNN is faster for the product, each of its gradients, and a product with GELU in
        bfloat16.
    """
    if not torch_choices.has_onednn():
        return {}
    mlp_shapes = (hidden_size, mlp_dim), (mlp_dim, hidden_size)
    sizes = [(rows, *shape) for shape in [(hidden_size, hidden_size)] * 4 + [*mlp_shapes]]
    onednn, standard = (
        functools.partial(_kernel_gradient, routes=Routes(kernel=kernel))
        for kernel in (True, False)
    )
    triples = [(_matrix(m, k), _matrix(k, n), _matrix(m, n)) for m, k, n in sizes]
    contests: dict[str, tuple[Callable, Callable, list[tuple]]] = {
        "forward": (_onednn, torch.mm, [(x, kernel) for x, kernel, _ in triples]),
        "inputs": (_onednn, torch.mm, [(gradient, w.t()) for _, w, gradient in triples]),
        "kernel": (onednn, standard, [(x, gradient) for x, _, gradient in triples]),
    }
    if torch_choices.has_onednn_bfloat16():
        x, kernel, _ = (matrix.bfloat16() for matrix in triples[-2])
        bias = torch.zeros(mlp_dim, dtype=torch.bfloat16)
        contests["bfloat16"] = (_fused_gelu, _gelu_after, [(x, kernel, bias)])
    with torch.no_grad():
        return {name: is_faster(*contest, rounds) for name, contest in contests.items()}


def _matrix(rows, columns):
    return torch.linspace(-1, 1, rows * columns).reshape(rows, columns)


def _fused_gelu(x, kernel, bias):
    return _onednn(x, kernel, bias, FUSED[gelu])


def _gelu_after(x, kernel, bias):
    return gelu(_forward(x, kernel, bias, Routes()))
