"""Layers of Keras on torch as graphs of torch's operations, which are functions of tensors."""

import contextlib
import functools
from collections.abc import Callable, Iterator

import keras
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from vit_keras.keras_internals import tensors_of


def weights_of(layers) -> list[keras.Variable]:
    """The weights of some layers, one after another."""
    return [variable for layer in layers for variable in layer.weights]


def trace(compute: Callable, x, layers, masks) -> tuple[torch.fx.GraphModule, bool]:
    """Records what some layers compute in a call.

    Args:
        compute: The function of a tensor that calls the layers.
        x: A tensor like those that it will take.
        layers: The layers.
        masks: Their dropouts and masks, as `masks_of` returns them.

    Returns:
        The graph, a function of a tensor, of the tensors of `weights_of(layers)` and of the masks,
        and whether the layers change their weights or the states of their seeds.
    """
    variables = weights_of(layers)
    changed: list[keras.Variable] = []

    def record(x, *others):
        weights, drawn = others[: len(variables)], others[len(variables) :]
        multiply = [functools.partial(torch.mul, mask) for mask in drawn]
        scope = keras.StatelessScope(list(zip(variables, weights)))
        with scope, _dropping([dropout for dropout, _ in masks], multiply):
            y = compute(x)
        before = {id(variable): weight for variable, weight in zip(variables, weights)}
        every = [variable for layer in layers for variable in layer.variables]
        changed.extend(v for v in every if scope.get_current_value(v) is not before.get(id(v)))
        return y

    arguments = [*tensors_of(variables), *(ones for _, ones in masks)]
    return make_fx(record, pre_dispatch=True)(x.detach(), *arguments), bool(changed)


def constants(graph: torch.fx.GraphModule) -> Iterator[tuple]:
    """The values of the tensors that a graph holds, such as the angles of rotary positions."""
    for name, tensor in sorted(graph.named_buffers()):
        values = tensor.detach().cpu().contiguous()
        yield name, str(values.dtype), values.shape, values.view(torch.uint8).numpy().tobytes()


def masks_of(compute: Callable, dropouts, x) -> list[tuple]:
    """The dropouts of some layers, each with ones in the shape of its mask.

    Args:
        compute: The function of a tensor that calls the layers for training.
        dropouts: Their dropouts.
        x: A tensor like those that it will take.
    """
    masks = []

    def record(dropout, x):
        noise = dropout.noise_shape or x.shape
        shape = [size if part is None else part for part, size in zip(noise, x.shape)]
        one = torch.ones((), dtype=x.dtype, device=x.device)
        masks.append((dropout, one.expand(shape)))  # which takes no memory
        return x

    functions = [functools.partial(record, dropout) for dropout in dropouts]
    if dropouts:
        with torch.no_grad(), _dropping(dropouts, functions):
            compute(x)
    return masks


def draw(dropout, ones):
    """A mask of 0 and 1 / (1 - rate), by the seed that the dropout would take."""
    return keras.random.dropout(ones, dropout.rate, seed=dropout.seed_generator)


@contextlib.contextmanager
def _dropping(dropouts, functions):
    """While open, each dropout is the function that stands at its place."""
    for dropout, function in zip(dropouts, functions):
        dropout.drawn = function
    try:
        yield
    finally:
        for dropout in dropouts:
            dropout.drawn = None
