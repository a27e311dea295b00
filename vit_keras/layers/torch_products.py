"""Products of rows and kernels on torch, by the library that is faster on this machine.

On CPUs torch multiplies float32 by MKL, which on some processors reaches half of what oneDNN does;
torch has both. Which one is faster is measured once on a machine, for the product and for each of
its two gradients, and kept in Keras' folder: a run that goes on computes the same bits.
"""

import functools
import json
import os
import pathlib
import tempfile
import time
from typing import NamedTuple

import torch
from torch.autograd.function import once_differentiable

from vit_keras import machine
from vit_keras.layers.dense import gelu, gelu_tanh

LARGE = 2**25  # multiply-adds from which a product outweighs what calling it costs
GAIN = 1.05  # less than this is noise
# CPU time, which other work on the machine changes little; on Windows it is too coarse.
CLOCK = time.process_time if os.name == "posix" else time.perf_counter
FUSED = {gelu: ("gelu", [], "none"), gelu_tanh: ("gelu", [], "tanh")}  # as oneDNN knows them


class Routes(NamedTuple):
    """Which products go to oneDNN: x w + b, its gradient to x, and that to w."""

    forward: bool = False
    inputs: bool = False
    kernel: bool = False


def linear(x, kernel, bias, activation=None):
    """activation(x kernel + bias) of tensors `(M, K)`, `(K, N)` and `(N,)`: `(M, N)`."""
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
    if not large or x.device.type != "cpu" or torch.compiler.is_compiling():
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
    @staticmethod
    def forward(context, x, kernel, bias, routes):
        context.save_for_backward(x, kernel)
        context.routes = routes
        return _forward(x, kernel, bias, routes)

    @staticmethod
    @once_differentiable
    def backward(context, gradient):
        x, kernel = context.saved_tensors
        needs, routes = context.needs_input_grad, context.routes
        gradient = gradient.contiguous()
        multiply = {True: _onednn, False: torch.mm}
        return (
            multiply[routes.inputs](gradient, kernel.t()) if needs[0] else None,
            multiply[routes.kernel](x.t(), gradient) if needs[1] else None,
            gradient.sum(0) if needs[2] else None,
            None,
        )


@functools.cache
def fastest() -> Routes:
    """The faster routes on this machine: what was measured before, or measured now."""
    if not _has_onednn():
        return Routes()
    path = _record()
    return _read(path) or _keep(path, measure())


def measure(rows=2048, narrow=384, wide=1024, rounds=5) -> Routes:
    """Times both libraries in turns on products of this size, less than a second in all."""
    pairs = ([], [], [])
    for width, outputs in ((narrow, wide), (wide, narrow)):
        x, kernel, gradient = (
            torch.linspace(-1, 1, a * b).reshape(a, b)
            for a, b in ((rows, width), (width, outputs), (rows, outputs))
        )
        for found, pair in zip(pairs, ((x, kernel), (gradient, kernel.t()), (x.t(), gradient))):
            found.append(pair)
    with torch.no_grad():
        return Routes(*(_is_faster(_onednn, torch.mm, found, rounds) for found in pairs))


def _is_faster(new, old, operands, rounds) -> bool:
    """Whether `new` takes less time for the products of all pairs of `operands` than `old`."""
    seconds = {new: [], old: []}
    for turn in range(rounds + 1):
        for product in (new, old):
            start = CLOCK()
            for pair in operands:
                product(*pair)
            if turn:  # the first allocates
                seconds[product].append(CLOCK() - start)
    return min(seconds[old]) > GAIN * min(seconds[new])


def _record() -> pathlib.Path:
    """The file of this machine, number of threads and version of torch."""
    threads = torch.get_num_threads()
    return machine.folder() / f"torch_{torch.__version__}_products_{threads}_threads.json"


def _read(path) -> Routes | None:
    """What was kept; None, and no file any more, where it cannot be read."""
    try:
        return Routes(**json.loads(path.read_text()))
    except (ValueError, TypeError):
        path.unlink(missing_ok=True)
    except OSError:
        pass
    return None


def _keep(path, routes) -> Routes:
    """Writes `routes` unless another process was first, whose choice then holds for both."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent) as file:
            json.dump(routes._asdict(), file)
            file.flush()
            os.link(file.name, path)
    except FileExistsError:
        return _read(path) or routes
    except OSError:  # nowhere to write: the choice holds for this process
        pass
    return routes
