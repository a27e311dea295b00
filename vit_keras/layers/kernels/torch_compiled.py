"""Models with `jit_compile=True` on torch, compiled in a step as functions of tensors.

`torch.compile` of a whole step, which is what Keras does, follows Python through the call of every
layer, for minutes. Here a model is called once with tensors that record their operations, and the
recorded graph is compiled: a function of the input, the weights and the masks of dropouts.
"""

import contextlib
import contextvars
import functools
import weakref
from collections.abc import Callable
from typing import Any

import keras
import torch
from torch.utils.checkpoint import checkpoint

from vit_keras.keras_internals import chain_of, sublayers, tensors_of
from vit_keras.layers.kernels import torch_choices
from vit_keras.layers.kernels.torch_settled import HOOKS, is_alone
from vit_keras.layers.kernels.torch_tracing import constants, draw, masks_of, trace, weights_of

_current: contextvars.ContextVar["_Step | None"] = contextvars.ContextVar("step", default=None)


def make_step(model, name: str, make: Callable, force: bool):
    """Makes the function of a training, test or prediction step, which compiles models if wanted.

    Args:
        model: The model whose step it is.
        name: The attribute that holds the function, such as "train_function".
        make: Keras' method that sets the attribute.
        force: Whether to make the function anew if there is one.
    """
    if not model.jit_compile:
        return make(force)
    if getattr(model, name) is None or force:
        model.jit_compile = False
        try:
            make(True)
        finally:
            model.jit_compile = True
        setattr(model, name, _Step(getattr(model, name)))
    return getattr(model, name)


def call_compiled(model, x, training):
    """What a model computes, inside of a step that compiles it; None elsewhere.

    Also None where hooks, regularizers of activities or a distribution need the layers.
    """
    step = _current.get()
    if step is None or training is None or not isinstance(x, torch.Tensor):
        return None
    return step.call(model, x, training)


class _Step:
    """A step function, during which models are compiled."""

    def __init__(self, function):
        self.function = function
        self.models: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self.compiled: dict[tuple, Callable] = {}  # by what a graph computes

    def __call__(self, data):
        with _during(self):
            return self.function(data)

    def call(self, model, x, training):
        plans = self.models.get(model)
        if plans is None:
            plans = self.models[model] = _Plans(model)
        pieces = plans.pieces(training)
        if plans.need_layers() or not pieces:
            return None
        for piece in pieces:
            kind = (training, x.shape, x.dtype)
            if not piece.is_eager and kind not in piece.calls:
                self._compile(piece, x, training, kind)
            if piece.is_eager:
                x = piece.compute(x, training)
                continue
            function, masks = piece.calls[kind]
            x = function(x, *tensors_of(piece.variables), *(draw(*mask) for mask in masks))
        return x

    def _compile(self, piece, x, training, kind):
        compute = functools.partial(piece.compute, training=training)
        with _during(None), torch_choices.tracing():
            masks = masks_of(compute, piece.dropouts(), x) if training else []
            graph, changes_weights = trace(compute, x, piece.layers, masks)
        if changes_weights:  # such as the averages of batch normalization
            piece.is_eager = True
            return
        again = training and piece.is_computed_again
        what = kind, graph.code, tuple(constants(graph)), again
        if what not in self.compiled:
            self.compiled[what] = torch.compile(
                _function_of(graph, again), fullgraph=True, dynamic=False
            )
        piece.calls[kind] = self.compiled[what], masks


class _Plans:
    """A model in pieces for training and for inference, and whether something needs its layers."""

    def __init__(self, model):
        self.model = weakref.ref(model)
        self.layers = sublayers(model)
        self.hooks = [getattr(layer, name) for layer in self.layers for name in HOOKS]
        self.is_regularized = any(layer.activity_regularizer is not None for layer in self.layers)
        self.made: dict[bool, list[_Piece]] = {}

    def need_layers(self) -> bool:
        return self.is_regularized or any(self.hooks) or not is_alone()

    def pieces(self, training) -> list["_Piece"]:
        """The pieces, one after another; none where the model cannot be divided as it has to."""
        if training not in self.made:
            model = self.model()
            if not training or not any(map(_kind_of, self.layers)):
                self.made[training] = [_Piece([model])]
            else:
                self.made[training] = list(_divided(chain_of(model)))
        return self.made[training]


class _Piece:
    """Layers of a model that are called one after another."""

    def __init__(self, layers, kind=""):
        self.layers, self.is_eager = layers, kind == "random"
        self.is_computed_again = kind == "again"
        self.variables = weights_of(layers)
        # By kinds of inputs: the function, and what `masks_of` returns.
        self.calls: dict[tuple, tuple[Callable, list]] = {}

    def compute(self, x, training):
        if self.is_computed_again:
            return self.layers[0].compute_by_layers(x, training)
        for layer in self.layers:
            call = keras.Model.__call__ if isinstance(layer, keras.Model) else type(layer).__call__
            x = call(layer, x, training=training)
        return x

    def dropouts(self) -> list:
        """The dropouts whose masks can be drawn before."""
        return [y for layer in self.layers for y in sublayers(layer) if hasattr(y, "drawn")]


def _kind_of(layer) -> str:
    """What training does with a layer that cannot be part of a graph; "" for nothing."""
    if getattr(layer, "rematerialise", False):
        return "again"
    is_random = getattr(layer, "seed_generator", None) is not None and not hasattr(layer, "drawn")
    return "random" if is_random else ""


def _divided(chain):
    """The pieces of layers that follow each other."""
    together: list[Any] = []
    for layer in chain:
        kind = next(filter(None, map(_kind_of, sublayers(layer))), "")
        if not kind:
            together.append(layer)
            continue
        if together:
            yield _Piece(together)
        together = []
        yield _Piece([layer], kind)
    if together:
        yield _Piece(together)


def _function_of(graph, is_computed_again):
    """A function of a graph, whose backward pass computes the graph again where that is wanted."""
    call = functools.partial(checkpoint, graph, use_reentrant=False) if is_computed_again else graph

    def compute(*tensors):
        return call(*tensors)

    compute.__code__ = compute.__code__.replace()  # torch compiles one code a few times only
    return compute


@contextlib.contextmanager
def _during(step):
    token = _current.set(step)
    try:
        yield
    finally:
        _current.reset(token)
