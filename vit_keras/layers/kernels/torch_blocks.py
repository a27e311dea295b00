"""An encoder block on torch as one function of tensors, without a call of any layer in it.

It computes what the layers compute, by the same operations in the same order, and so to the same
bits. Where something needs the layers, such as a hook or an adapter, it leaves the work to them.
"""

import types
import weakref

from vit_keras.keras_internals import tensor_reader
from vit_keras.layers.kernels import torch_choices
from vit_keras.layers.kernels.torch_attention import attention
from vit_keras.layers.kernels.torch_calls import call_inside, layer_norm
from vit_keras.layers.kernels.torch_products import (
    are_routed,
    mlp_of_tensors,
    own_product,
    rows_product,
)
from vit_keras.layers.kernels.torch_settled import Settled

PROJECTIONS = [(f"{name}.kernel", f"{name}.bias") for name in ("query", "key", "value")]
BLOCKS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def encoder_block(block, x, training):
    """The result of an `EncoderBlock`, `(B, N, D)`, or None where its layers have to be called."""
    if not block.is_standard or torch_choices.is_traced():
        return None
    whole = BLOCKS.get(block)
    if whole is None:
        whole = BLOCKS[block] = WholeBlock(block)
    if not whole.settled.holds(x):
        del BLOCKS[block]  # it tells how the block was
        return None
    return whole(x, training)


class WholeBlock:
    """The function of a standard `EncoderBlock`, with its layers looked up once.

    Args:
        block: The block. Its layers are kept, and it is not.

    Call arguments:
        x: The tokens, `(B, N, D)`.
        training: Whether the call is for training.

    Returns:
        A tensor `(B, N, D)`, or None where training drops weights of attention or keeps no more
        than the block's input.
    """

    def __init__(self, block):
        attention, mlp = block.attention, block.mlp
        layers = {
            "norm_0": block.norm_0,
            "query": attention.query,
            "key": attention.key,
            "value": attention.value,
            "out": attention.out,
            "scale_0": block.layer_scale_0,
            "norm_2": block.norm_2,
            "dense_0": mlp.dense_0,
            "dense_1": mlp.dense_1,
            "scale_1": block.layer_scale_1,
        }
        layers = {name: layer for name, layer in layers.items() if layer is not None}
        self.layers, self.mlp = types.SimpleNamespace(**layers), mlp
        self.settled = Settled([*layers.values(), attention, mlp])
        self.names = [f"{n}.{weight}" for n, layer in layers.items() for weight in _weights(layer)]
        self.read = tensor_reader(*self.names)
        self.epsilon, self.scale = block.layer_norm_epsilon, attention.head_size**-0.5
        self.heads = attention.num_heads, attention.head_size
        self.trains_by_layers = bool(block.attention_dropout_rate or block.rematerialise)
        self.has_dropouts = bool(block.dropout_rate or block.stochastic_depth_rate)
        self.out_dropout = block.attention_out_dropout
        self.drop_paths = block.drop_path_0, block.drop_path_1

    def __call__(self, x, training):
        if training and self.trains_by_layers:
            return None
        weights = dict(zip(self.names, self.read(self.layers)))
        drop = self._drop if training and self.has_dropouts else None
        images, tokens, width = x.shape
        is_routed = are_routed(x, images * tokens, weights["dense_0.kernel"])
        multiply = rows_product if is_routed else own_product
        y = layer_norm(x, weights["norm_0.gamma"], weights["norm_0.beta"], self.epsilon)
        y, heads = y.view(-1, width), (images, tokens, *self.heads)  # (B·N, D), (B, N, H, d)
        query, key, value = [
            multiply(y, weights[kernel].view(width, -1), _flat(weights.get(bias))).view(heads)
            for kernel, bias in PROJECTIONS
        ]
        y = attention(query, key, value, self.scale).reshape(-1, width)
        y = multiply(y, weights["out.kernel"].view(-1, width), weights["out.bias"]).view(x.shape)
        y = drop(self.out_dropout, y) if drop else y
        x = x + self._branch(y, weights.get("scale_0.gamma"), drop, 0)
        y = layer_norm(x, weights["norm_2.gamma"], weights["norm_2.beta"], self.epsilon)
        y = self._hidden(y, weights, is_routed and training, multiply, drop).view(x.shape)
        return x + self._branch(y, weights.get("scale_1.gamma"), drop, 1)

    def _hidden(self, x, weights, keeps_less, multiply, drop):
        """The MLP of `(B, N, D)`, by rows unless `keeps_less` for the gradient."""
        mlp = self.mlp
        first, second = (
            (weights[f"{name}.kernel"], weights[f"{name}.bias"]) for name in ("dense_0", "dense_1")
        )
        if keeps_less and not mlp.dropout_rate:
            return mlp_of_tensors(x, first, second, mlp.dense_0.activation)
        x = multiply(x.view(-1, x.shape[-1]), *first, mlp.dense_0.activation)
        if drop is None:
            return multiply(x, *second)
        return drop(mlp.dropout_1, multiply(drop(mlp.dropout_0, x), *second))

    def _branch(self, x, scale, drop, index):
        x = x if scale is None else x * scale
        return drop(self.drop_paths[index], x) if drop else x

    def _drop(self, layer, x):
        return call_inside(self.mlp, layer, x, training=True)


def _weights(layer):
    """The names of a layer's weights."""
    if hasattr(layer, "bias"):
        return ("kernel",) if layer.bias is None else ("kernel", "bias")
    return ("gamma", "beta") if hasattr(layer, "beta") else ("gamma",)


def _flat(bias):
    return None if bias is None else bias.view(-1)
