"""Torch's own code: products, attention, and updates of many weights.

On CPUs, torch multiplies float32 with MKL, which on some processors reaches half the speed of
oneDNN; torch includes both. `backends.use` chooses the library for a product and its gradients. On
some processors, torch's attention kernel multiplies bfloat16 at a fifth of the speed of dense
products. Attention that is written out as dense products runs on oneDNN instead; its gradient
computes the weights again, so no more is kept than with torch's own kernel.
"""

import contextlib
import functools
from collections.abc import Callable

import keras
import numpy as np
import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from vit_keras.layers.backends import chosen, gelu, gelu_tanh, is_faster

_is_compiling = False


def concerns(x: torch.Tensor) -> bool:
    """Whether the choices apply to `x`: on CPUs, while torch is not compiling the model."""
    return x.device.type == "cpu" and not (_is_compiling or torch.compiler.is_compiling())


@contextlib.contextmanager
def compiling():
    """While open, operations are recorded for torch to compile."""
    global _is_compiling
    _is_compiling = True
    try:
        yield
    finally:
        _is_compiling = False


@functools.cache
def has_onednn() -> bool:
    """Whether this torch can call oneDNN's products."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@functools.cache
def has_onednn_bfloat16() -> bool:
    """Whether oneDNN supports products in bfloat16 on this processor."""
    return has_onednn() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def check(choices: dict[str, dict[str, bool]]) -> None:
    """Checks that this machine can run the chosen implementations.

    Raises:
        ValueError: If it cannot.
    """
    needed = {"float32": has_onednn, "bfloat16": has_onednn_bfloat16}
    products = choices["torch_products"]
    missing = [name for name, has in needed.items() if products[name] and not has()]
    if missing:
        raise ValueError(
            "The chosen products need oneDNN and, in bfloat16, a processor on which it has them. "
            f"Received: torch_products with {', '.join(missing)} on a machine that cannot "
            "run them. Resume the run on the machine that started it, or start a new run here"
        )


LARGE = 2**25  # multiply-adds above which a product outweighs the cost of the call
MANY_UNITS = 2**21  # of a layer; with fewer, less than 8 MB is kept for the gradient
# The names of activations in oneDNN and in torch.
FUSED: dict[Callable, tuple] = {gelu: ("gelu", [], "none"), gelu_tanh: ("gelu", [], "tanh")}


def value_of(x) -> torch.Tensor:
    """The tensor of a variable, or the tensor itself."""
    if isinstance(x, torch.Tensor):
        return x
    return x.value if isinstance(x, keras.Variable) else keras.ops.convert_to_tensor(x)


def layer_norm(x, gamma, beta, epsilon: float):
    """LN(x) γ + β over the last axis, in at least float32, like `keras.ops` but without checks."""
    width = tuple(gamma.shape)  # from a variable: constant for torch's tracers, unlike x.shape
    gamma, beta = value_of(gamma), value_of(beta)
    if x.dtype is torch.float32 is gamma.dtype:
        return torch.nn.functional.layer_norm(x, width, gamma, beta, epsilon)
    exact = x.dtype if x.dtype is torch.float64 else torch.float32
    weights = gamma.to(exact), beta.to(exact)
    y = torch.nn.functional.layer_norm(x.to(exact), width, *weights, epsilon)
    return y.to(x.dtype)


def linear(x, kernel, bias, activation=None):
    """activation(x kernel + bias): `(…, *K)`, `(*K, *N)` and `(*N,)` -> `(…, *N)`."""
    x, kernel = value_of(x), value_of(kernel)
    bias = None if bias is None else value_of(bias)
    summed = 1 if bias is None else kernel.dim() - bias.dim()
    shape = (*x.shape[: x.dim() - summed], *kernel.shape[summed:])
    if kernel.dim() > 2:
        kernel, x = kernel.flatten(0, summed - 1).flatten(1), x.flatten(-summed)
        bias = None if bias is None else bias.flatten()
    if concerns(x):
        x = x.reshape(-1, kernel.shape[0])  # torch would do it in more steps
    by_onednn, training = _is_by_onednn(x, kernel), torch.is_grad_enabled()
    if by_onednn and activation in FUSED and not training:
        y = _onednn(x, kernel, bias, FUSED[activation])
    else:
        multiply = _Linear.apply if by_onednn and training else _forward
        y = multiply(x, kernel, bias, by_onednn)
        y = y if activation is None else activation(y)
    return y if y.dim() == len(shape) else y.reshape(shape)


def mlp(x, first, second):
    """second(first(x)) of two `Dense` layers in training, `(…, D)` -> `(…, D)`.

    On CPUs, layers with many hidden units keep only GELU's input. The gradient computes GELU again,
    which takes 0.5% of a step and saves a sixth of its memory.
    """
    units, gelu = x.numel() // x.shape[-1] * first.units, first.activation
    is_kept = units < MANY_UNITS or not torch.is_grad_enabled() or gelu not in FUSED
    if is_kept or first._forward_hooks or second._forward_hooks or not concerns(x):
        return second(first(x, training=True), training=True)
    hidden = linear(x, first.kernel, first.bias).flatten(0, -2)
    kernel, bias = value_of(second.kernel), value_of(second.bias)
    y = _Linear.apply(hidden, kernel, bias, _is_by_onednn(hidden, kernel), gelu)
    return y.reshape(*x.shape[:-1], -1)


def _is_by_onednn(x, kernel) -> bool:
    if not concerns(x) or x.dtype != kernel.dtype or x.numel() * kernel.shape[1] < LARGE:
        return False
    return chosen()["torch_products"].get(str(x.dtype).removeprefix("torch."), False)


def _onednn(x, kernel, bias=None, activation=("none", [], "")):
    return torch.ops.mkldnn._linear_pointwise(x, kernel.t(), bias, *activation)


def _forward(x, kernel, bias, by_onednn):
    if by_onednn:
        return _onednn(x, kernel, bias)
    if x.dim() == 2 and bias is not None:
        return torch.addmm(bias, x, kernel)
    return torch.nn.functional.linear(x, kernel.t(), bias)


class _Linear(torch.autograd.Function):
    """x kernel + bias, or gelu(x) kernel + bias; keeps x for the gradient, but not gelu(x).

    oneDNN computes the gradients only in float32.
    """

    @staticmethod
    def forward(context, x, kernel, bias, by_onednn, gelu=None):
        kept = x if gelu or context.needs_input_grad[1] else None  # a frozen kernel needs no x
        context.save_for_backward(kept, kernel)
        context.by_onednn, context.gelu = by_onednn and x.dtype is torch.float32, gelu
        return _forward(gelu(x) if gelu else x, kernel, bias, by_onednn)

    @staticmethod
    @once_differentiable
    def backward(context, gradient):
        x, kernel = context.saved_tensors
        (wants_x, wants_kernel, wants_bias, *_), gelu = context.needs_input_grad, context.gelu
        gradient, by_onednn = gradient.contiguous(), context.by_onednn
        x_gradient = kernel_gradient = None
        if wants_kernel:
            kernel_gradient = _kernel_gradient(gelu(x) if gelu else x, gradient, by_onednn)
        if wants_x:
            x_gradient = (_onednn if by_onednn else torch.mm)(gradient, kernel.t())
        if wants_x and gelu:
            into = {"approximate": FUSED[gelu][2], "grad_input": x_gradient}
            torch.ops.aten.gelu_backward.grad_input(x_gradient, x, **into)
        return x_gradient, kernel_gradient, gradient.sum(0) if wants_bias else None, None, None


def _kernel_gradient(x, gradient, by_onednn):
    """xᵀ g of `(M, K)` and `(M, N)`; transposes the narrower one, since oneDNN copies it."""
    if not by_onednn:
        return torch.mm(x.t(), gradient)
    if x.shape[1] > gradient.shape[1]:
        return _onednn(gradient.t(), x).t().contiguous()
    return _onednn(x.t(), gradient)


def measure_products(rows=2048, hidden_size=384, mlp_dim=1536, rounds=5) -> dict[str, bool]:
    """Times both libraries in alternation on the six products of a block, in a second or two.

    Returns:
        Whether oneDNN is faster for products with their gradients, and for a product with GELU in
        bfloat16.
    """
    if not has_onednn():
        return {}
    shapes = [(hidden_size, hidden_size)] * 4 + [(hidden_size, mlp_dim), (mlp_dim, hidden_size)]
    triples = [(_matrix(rows, k), _matrix(k, n), _matrix(rows, n)) for k, n in shapes]
    onednn, standard = (functools.partial(_products, by_onednn) for by_onednn in (True, False))
    contests: dict[str, tuple[Callable, Callable, list]] = {"float32": (onednn, standard, triples)}
    if has_onednn_bfloat16():
        x, kernel, _ = (matrix.bfloat16() for matrix in triples[-2])
        bias = torch.zeros(mlp_dim, dtype=torch.bfloat16)
        fused = lambda x, kernel, bias: _onednn(x, kernel, bias, FUSED[gelu])
        separate = lambda x, kernel, bias: gelu(_forward(x, kernel, bias, False))
        contests["bfloat16"] = (fused, separate, [(x, kernel, bias)])
    with torch.no_grad():
        return {name: is_faster(*contest, rounds) for name, contest in contests.items()}


def _matrix(rows, columns):
    return torch.linspace(-1, 1, rows * columns).reshape(rows, columns)


def _products(by_onednn, x, kernel, gradient):
    """A product, and its gradients with respect to x and to the kernel."""
    multiply = _onednn if by_onednn else torch.mm
    multiply(x, kernel)
    multiply(gradient, kernel.t())
    _kernel_gradient(x, gradient, by_onednn)


LONGEST = 1024  # tokens; with more, the weights of a layer would take too much memory


def attention(query, key, value, scale):
    """softmax(scale q kᵀ) v; the tensors and the result are `(B, N, H, d)`."""
    is_written_out = (
        query.dtype is torch.bfloat16 is key.dtype
        and concerns(query)
        and max(query.shape[1], key.shape[1]) <= LONGEST
        and chosen()["torch_attention"]["written_out"]
    )
    return (_written_out if is_written_out else _fused)(query, key, value, scale)


def _fused(query, key, value, scale):
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    return scaled_dot_product_attention(query, key, value, scale=scale).transpose(1, 2)


def _written_out(query, key, value, scale):
    images, heads = query.shape[0], query.shape[2]
    x = _Attention.apply(*map(_heads_first, (query, key, value)), scale)
    return x.view(images, heads, *x.shape[1:]).transpose(1, 2)


def _heads_first(x):
    """`(B, N, H, d)` -> `(B·H, N, d)`."""
    return x.transpose(1, 2).reshape(-1, x.shape[1], x.shape[3])


class _Attention(torch.autograd.Function):
    """softmax(scale q kᵀ) v of `(B·H, N, d)`; the gradient computes the weights again."""

    @staticmethod
    def forward(context, query, key, value, scale):
        context.save_for_backward(query, key, value)
        context.scale = scale
        return torch.bmm(_weights(query * scale, key), value)

    @staticmethod
    @once_differentiable
    def backward(context, gradient):
        query, key, value = context.saved_tensors
        query = query * context.scale
        weights = _weights(query, key)
        value_gradient = torch.bmm(weights.transpose(1, 2), gradient)
        logits = torch.bmm(gradient, value.transpose(1, 2))
        logits = torch._softmax_backward_data(logits, weights, -1, weights.dtype)
        query_gradient = torch.bmm(logits, key).mul_(context.scale)
        return query_gradient, torch.bmm(logits.transpose(1, 2), query), value_gradient, None


def _weights(query, key):
    return torch.softmax(torch.bmm(query, key.transpose(1, 2)), -1)


def measure_attention(images=4, tokens=197, heads=6, width=64, rounds=5) -> dict[str, bool]:
    """Times both forms of attention of this size, with gradients, in half a second in total."""
    count = images * tokens * heads * width
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.linspace(-3, 3, count).reshape(images, tokens, heads, width)
        x = x.bfloat16().requires_grad_()
        gradient = lambda attend, x: torch.autograd.grad(attend(x, x, x, width**-0.5).sum(), x)
        new, old = (functools.partial(gradient, form) for form in (_written_out, _fused))
        return {"written_out": is_faster(new, old, [(x,)], rounds)}


no_grad = torch.no_grad


def global_norm(tensors):
    """The norm of all `tensors` together, in float32."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)).float())


def scale_tensors(tensors, scale):
    """Multiplies `tensors` by `scale` in place and returns them."""
    torch._foreach_mul_(tensors, scale)
    return tensors


def move_towards(variables, targets, fraction):
    """Moves `variables` by `fraction` of the way to `targets`; 1 is all the way."""
    torch._foreach_lerp_([v.value for v in variables], [v.value for v in targets], float(fraction))


def update_groups(groups, update):
    """Calls `update(weights, gradients, indices, *terms)` for each group of variables.

    `groups` is `{terms: [(variable, gradient, index), …]}`.
    """
    for terms, rows in groups.items():
        variables, gradients, indices = map(list, zip(*rows))
        update([variable.value for variable in variables], gradients, indices, *terms)
        for variable in variables:
            variable.value.grad = None  # Keras would keep it until the end of the next forward pass


def adamw_update(
    weights, gradients, momentums, velocities, update, *, rate, weight_decay, betas, epsilon
):
    """Applies AdamW's update number `update` to the weights, all in place."""
    moments = ([slot.value for slot in slots] for slots in (momentums, velocities))
    updates = [update.to(torch.float32)] * len(weights)
    rates = {"lr": rate, "beta1": betas[0], "beta2": betas[1], "weight_decay": weight_decay}
    rates |= {"eps": epsilon, "amsgrad": False, "maximize": False}
    torch._fused_adamw_(weights, gradients, *moments, [], updates, **rates)


def sgd_update(weights, gradients, traces, momentum, *, rate, weight_decay):
    """u ← momentum · u + g, w ← w - rate · (u + weight_decay · w), all in place."""
    traces = [trace.value for trace in traces]
    directions = [trace.float() for trace in traces]  # the traces themselves if float32
    torch._foreach_mul_(directions, momentum)
    torch._foreach_add_(directions, gradients)
    torch._foreach_copy_(traces, directions)
    if weight_decay:
        torch._foreach_mul_(weights, 1 - rate * weight_decay)
    torch._foreach_add_(weights, directions, alpha=-rate)


def generator_state() -> np.ndarray:
    """The state of the generator, uint8."""
    return np.array(torch.get_rng_state().numpy())


def set_generator_state(state: np.ndarray) -> None:
    torch.set_rng_state(torch.from_numpy(state))


def measure() -> dict[str, dict[str, bool]]:
    """The faster implementations on this machine; {} if models run on an accelerator."""
    if not concerns(keras.ops.zeros(())):
        return {}
    return {"torch_products": measure_products(), "torch_attention": measure_attention()}


def gradients(function, tensors):
    """The gradients of the number `function(*tensors)` with respect to each tensor."""
    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    return torch.autograd.grad(function(*tensors), tensors)


def on_host(function, tensors):
    """Applies `function` to NumPy arrays; its result, int32, has the shape of the last tensor."""
    result = function(*(tensor.detach().cpu().numpy() for tensor in tensors))
    return torch.from_numpy(result).to(tensors[-1].device)
