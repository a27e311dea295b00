"""The operations of a framework that a Vision Transformer needs, behind one set of names."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Tensor = Any  # of JAX or TensorFlow


class Operations(NamedTuple):
    """The operations, with NumPy's arguments where nothing else is said.

    Attributes:
        convert: Takes an array and a type; returns a tensor.
        batch: Takes a tensor; returns the size of its first axis.
        reshape: As in NumPy.
        transpose: As in NumPy.
        concatenate: Takes tensors and an axis.
        broadcast_to: As in NumPy.
        matmul: As in NumPy.
        mean: Takes a tensor and an axis; returns the mean over the axis, which stays.
        rsqrt: 1 / √x.
        cos: As in NumPy.
        sin: As in NumPy.
        tanh: As in NumPy.
        sigmoid: 1 / (1 + exp(-x)).
        where: As in NumPy.
        gelus: GELU by "exact", "tanh" and "quick".
        activations: "linear", "softmax" and "sigmoid".
        take: Takes a table `(R, H)` and indices `(N,)`; returns rows `(N, H)`.
        smallest: Takes numbers `(B, N)` and a count; returns the sorted places of the smallest.
        gather: Takes tokens `(B, N, D)` and places `(B, M)`; returns tokens `(B, M, D)`.
    """

    convert: Callable
    batch: Callable
    reshape: Callable
    transpose: Callable
    concatenate: Callable
    broadcast_to: Callable
    matmul: Callable
    mean: Callable
    rsqrt: Callable
    cos: Callable
    sin: Callable
    tanh: Callable
    sigmoid: Callable
    where: Callable
    gelus: Mapping[str, Callable]
    activations: Mapping[str, Callable]
    take: Callable
    smallest: Callable
    gather: Callable


def dense(ops: Operations, p, x: Tensor, summed: int = 1) -> Tensor:
    """x kernel + bias as one product of all rows, `(B, …, *K)` -> `(B, …, *N)`.

    Args:
        ops: The operations.
        p: A dictionary with `kernel` `(*K, *N)`, and `bias` `(*N,)` where there is one.
        x: The tensor.
        summed: The number of axes in K.
    """
    kernel = p["kernel"]
    outer, units = x.shape[1 : len(x.shape) - summed], kernel.shape[summed:]
    size = 1
    for axis in kernel.shape[:summed]:
        size *= axis
    y = ops.matmul(ops.reshape(x, (-1, size)), ops.reshape(kernel, (size, -1)))
    if "bias" in p:
        y = y + ops.reshape(p["bias"], (-1,))
    return ops.reshape(y, (-1, *outer, *units))


def norm(ops: Operations, p, x: Tensor, epsilon: float) -> Tensor:
    """Layer normalization over the last axis, or by the root mean square without a `bias`.

    Args:
        ops: The operations.
        p: A dictionary with `scale`, and `bias` for layer normalization.
        x: The tensor.
        epsilon: The number added to the variance.
    """
    exact = x if x.dtype == "float64" else ops.convert(x, "float32")
    if "bias" in p:
        exact = exact - ops.mean(exact, -1)
    y = (
        exact
        * ops.rsqrt(ops.mean(exact * exact, -1) + epsilon)
        * ops.convert(p["scale"], exact.dtype)
    )
    if "bias" in p:
        y = y + ops.convert(p["bias"], exact.dtype)
    return ops.convert(y, x.dtype)


def rotate(ops: Operations, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the pairs (i, i + d/2) of `(B, N, H, d)` by tables `(N, 1 or H, d/2)`."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return ops.concatenate([first * cos - second * sin, second * cos + first * sin], -1)
