"""Attention on torch: by torch's own kernel, or in bfloat16 on CPUs by products written out.

On some processors torch's kernel multiplies bfloat16 at a fifth of the speed of dense products.
Written out, the products are oneDNN's. The gradient computes the weights again, so that no more is
kept than torch's own kernel keeps. `choices` says whether they are written out.
"""

import functools

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from vit_keras.layers.kernels import choices, torch_choices
from vit_keras.layers.kernels.timing import is_faster

LONGEST = 1024  # tokens; of more, the weights of a layer would take too much memory


def attention(query, key, value, scale):
    """softmax(scale q kᵀ) v of tensors `(B, N, H, d)`: `(B, N, H, d)`."""
    return (_written_out if _is_written_out(query, key) else _fused)(query, key, value, scale)


def _is_written_out(query, key) -> bool:
    if query.dtype is not torch.bfloat16 or not torch_choices.concerns(query):
        return False
    if max(query.shape[1], key.shape[1]) > LONGEST or query.dtype != key.dtype:
        return False
    return choices.options_of("torch_attention")["written_out"]


def _fused(query, key, value, scale):
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    return heads_first(query, key, value, scale).transpose(1, 2)


def heads_first(query, key, value, scale, bias=None):
    """softmax(scale q kᵀ + bias) v of `(B, H, N, d)`, by torch's own kernel: `(B, H, N, d)`.

    `keras.ops.dot_product_attention` copies q, k and v, and flattening its result is another copy.
    This function copies nothing.
    """
    return scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale)


def _written_out(query, key, value, scale):
    images, heads = query.shape[0], query.shape[2]
    x = _Attention.apply(*map(_heads_first, (query, key, value)), scale)
    return x.view(images, heads, *x.shape[1:]).transpose(1, 2)


def _heads_first(x):
    """`(B, N, H, d)` -> `(B·H, N, d)`."""
    return x.transpose(1, 2).reshape(-1, x.shape[1], x.shape[3])


class _Attention(torch.autograd.Function):
    """softmax(scale q kᵀ) v of `(B·H, N, d)`; the weights are computed again for the gradient."""

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


def measure(images=4, tokens=197, heads=6, width=64, rounds=5) -> dict[str, bool]:
    """Times both on attention of this size with its gradients, half a second in all."""
    count = images * tokens * heads * width
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.linspace(-3, 3, count).reshape(images, tokens, heads, width)
        x = x.bfloat16().requires_grad_()
        new, old = (functools.partial(_with_gradients, f) for f in (_written_out, _fused))
        return {"written_out": is_faster(new, old, [(x,)], rounds)}


def _with_gradients(attend, x):
    return torch.autograd.grad(attend(x, x, x, x.shape[-1] ** -0.5).sum(), x)
