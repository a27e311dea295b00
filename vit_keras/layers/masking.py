"""Patches that are corrupted, left out and put back (Appendix B.1.2; MAE, arXiv 2111.06377).

`source` `(B, N)` int32 says which patch's token stands at each of N places: the place's own number,
another's, or N for the learned [mask].
"""

import keras
from keras import ops

from vit_keras.initializers import Normal
from vit_keras.layers.base import SeededLayer, check_positive


@keras.saving.register_keras_serializable(package="vit_keras")
class CorruptTokens(SeededLayer):
    """Puts the tokens of `source` in their places: `(B, N, D)`, `(B, N)` -> `(B, N, D)`.

    `mask` `(1, 1, D)` starts as N(0, 0.02²).
    """

    def build(self, x_shape, source_shape):
        self.mask = _mask(self, x_shape[-1])

    def call(self, x, source):
        return _take(_append(x, self.mask), source)

    def compute_output_shape(self, x_shape, source_shape):
        return x_shape


@keras.saving.register_keras_serializable(package="vit_keras")
class TakeVisible(keras.layers.Layer):
    """The `visible` patches that are their own source: `(B, N, D)`, `(B, N)` -> `(B, visible, D)`.

    They stay in order. A class token before the patches stays as well.
    """

    def __init__(self, visible: int, **kwargs):
        super().__init__(**kwargs)
        check_positive(visible=visible)
        self.visible = visible

    def build(self, x_shape, source_shape):
        pass  # Keras' own takes the shape of one input alone

    def call(self, x, source):
        before = x.shape[1] - source.shape[1]
        order = ops.argsort(source, axis=1)[:, : self.visible]  # those masked are N, and come last
        patches = _take(x[:, before:], order)
        return ops.concatenate([x[:, :before], patches], axis=1) if before else patches

    def compute_output_shape(self, x_shape, source_shape):
        batch, tokens, width = x_shape
        return (batch, tokens - source_shape[1] + self.visible, width)

    def get_config(self):
        return {**super().get_config(), "visible": self.visible}


@keras.saving.register_keras_serializable(package="vit_keras")
class RestoreTokens(SeededLayer):
    """Puts back what `TakeVisible` took, [mask] in all other places: its inverse.

    `(B, visible, D)`, `(B, N)` -> `(B, N, D)`, with a class token where there was one. `mask`
    `(1, 1, D)` starts as N(0, 0.02²).
    """

    def __init__(self, visible: int, **kwargs):
        super().__init__(**kwargs)
        check_positive(visible=visible)
        self.visible = visible

    def build(self, x_shape, source_shape):
        self.mask = _mask(self, x_shape[-1])

    def call(self, x, source):
        before = x.shape[1] - self.visible
        is_visible = source < source.shape[1]
        rank = ops.cumsum(ops.cast(is_visible, "int32"), axis=1) - 1
        index = ops.where(is_visible, rank, self.visible)
        patches = _take(_append(x[:, before:], self.mask), index)
        return ops.concatenate([x[:, :before], patches], axis=1) if before else patches

    def compute_output_shape(self, x_shape, source_shape):
        batch, tokens, width = x_shape
        return (batch, tokens - self.visible + source_shape[1], width)

    def get_config(self):
        return {**super().get_config(), "visible": self.visible}


def _mask(layer, width):
    initializer = Normal(0.02, layer.fold_in("mask"))
    return layer.add_weight(name="mask", shape=(1, 1, width), initializer=initializer)


def _append(x, token):
    """`(B, N, D)` and `(1, 1, D)` -> `(B, N + 1, D)`."""
    token = ops.broadcast_to(token, (ops.shape(x)[0], 1, x.shape[-1]))
    return ops.concatenate([x, token], axis=1)


def _take(x, index):
    """Tokens `(B, N, D)` by their numbers `(B, M)` -> `(B, M, D)`."""
    return ops.take_along_axis(x, index[:, :, None], axis=1)
