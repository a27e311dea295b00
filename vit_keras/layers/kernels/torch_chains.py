"""A functional model on torch as a loop over its layers, without Keras' work around each call.

For one small image this work takes as long as a tenth of the products: the call of the model and of
each layer, the walk over the graph, and a look at each layer in the blocks.
"""

import weakref

import keras
import numpy as np
import torch

from vit_keras.keras_internals import chain_of, is_inside_call, sublayers
from vit_keras.layers.kernels import torch_choices, torch_compiled
from vit_keras.layers.kernels.torch_blocks import WholeBlock
from vit_keras.layers.kernels.torch_calls import takes_training
from vit_keras.layers.kernels.torch_settled import Settled

KNOWN = (keras.layers.Dense, keras.layers.Dropout)  # of Keras' layers
CHAINS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def call_chain(model, x, training):
    """What a functional model computes whose layers follow each other.

    Args:
        model: The model.
        x: Its input.
        training: Whether the call is for training; None if the call does not say.

    Returns:
        The output, or None where Keras has to call the model.
    """
    if torch_choices.is_traced() or (training is None and is_inside_call()):
        return None
    if isinstance(x, np.ndarray):
        x = keras.ops.convert_to_tensor(x)
    compiled = torch_compiled.call_compiled(model, x, training)
    if compiled is not None:
        return compiled
    chain = CHAINS.get(model)
    if chain is None:
        chain = CHAINS[model] = _Chain(model)
    if not chain.takes(x):
        return None
    if not chain.settled.holds(x):
        del CHAINS[model]  # it tells how the model was
        return None
    return chain(x, training)


class _Chain:
    """The layers of a functional model, if each takes the result of the one before.

    Args:
        model: The model. Its layers are kept, and it is not.
    """

    def __init__(self, model):
        layers = chain_of(model)
        if not all(_is_known(type(layer)) for layer in layers):
            layers = []
        self.axes = len(model.inputs[0].shape) if layers else None
        self.settled = Settled([below for layer in layers for below in sublayers(layer)])
        self.hooks = Settled([model]).hooks
        self.steps = [(_whole(layer), layer, takes_training(layer.__class__)) for layer in layers]

    def takes(self, x) -> bool:
        """Whether `x` is a tensor with all axes and without a mask."""
        return (
            isinstance(x, torch.Tensor)
            and x.dim() == self.axes
            and getattr(x, "_keras_mask", None) is None
            and not any(self.hooks)
        )

    def __call__(self, x, training):
        for whole, layer, takes_mode in self.steps:
            y = None if whole is None else whole(x, training)
            if y is None:
                y = layer.call(x, training=training) if takes_mode else layer.call(x)
            x = y
        return x


def _is_known(kind) -> bool:
    return kind.__module__.startswith("vit_keras.") or kind in KNOWN


def _whole(layer):
    return WholeBlock(layer) if getattr(layer, "is_standard", False) else None
