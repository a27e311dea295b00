"""The encoder block for inference: the same numbers from fewer and simpler operations.

Query, key and value come from one product, which includes the factor 1/√d and the normalization's
scale and offset. On torch, attention uses torch's kernel.
"""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from vit_keras.exporting import token_merging
from vit_keras.exporting.folded_weights import affine, fold, matrix
from vit_keras.exporting.inference_layers import AttentionAndMLP
from vit_keras.layers import RelativeBias2D, RotaryPositions, backends
from vit_keras.layers.base import pair
from vit_keras.layers.windows import windows_of

heads_first_attention = backends.lookup("heads_first_attention")


@keras.saving.register_keras_serializable(package="vit_keras")
class InferenceBlock(AttentionAndMLP):
    """An `EncoderBlock` for inference: `(B, N, D)` -> `(B, N, D)`.

    If it merges tokens or is called with their sizes `(B, N, 1)`, it returns `(B, N - merged, D)`
    and the sizes of the remaining tokens.

    Args:
        merged: Pairs of tokens to merge; see `token_merging`.
        prefix: The number of tokens before the patches, which are never merged.
        with_weights: Whether to return the attention `(B, N, N)`, averaged over heads, too. Such a
            layer neither merges tokens nor takes sizes.
        position_embedding: As in `EncoderBlock`, except "relative".
        grid: As in `EncoderBlock`.
    """

    def __init__(
        self,
        *args,
        merged: int = 0,
        prefix: int = 0,
        with_weights: bool = False,
        position_embedding: str | None = None,
        grid: tuple[int, int] | None = None,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.merged, self.prefix, self.with_weights = merged, prefix, with_weights
        self.position_embedding, self.grid = position_embedding, grid
        self.windows = windows_of(self.options, grid and pair(grid, "grid"), position_embedding)
        self.rotary = self.relative = None
        if position_embedding == "rope2d" or self.options.rope is not None:
            self.rotary = RotaryPositions(
                pair(grid, "grid"), self.options.rope, dtype=self.dtype_policy
            )
        if position_embedding == "relative_2d":
            self.relative = RelativeBias2D(pair(grid, "grid"), dtype=self.dtype_policy)

    def build(self, x_shape, size_shape=None):
        _, tokens, width = x_shape
        head_size = width // self.num_heads
        self.qkv = self.dense(width, 3 * width, "qkv")
        for layer in (self.rotary, self.relative):
            if layer is not None:
                layer.build((None, tokens, self.num_heads, head_size))
        if self.options.qk_norm:
            self.query_affine, self.key_affine = (
                self.add_weight(name=f"{name}_affine", shape=(2, head_size))
                for name in ("query", "key")
            )
        if self.windows is not None and self.windows.are_padded:
            shape = (2, self.num_heads, head_size)  # its keys and values
            self.padding = self.add_weight(name="padding", shape=shape)
        self.build_rest(width)

    def take(self, block):
        """Copies the weights of an `EncoderBlock`."""
        attention = block.attention
        scale = attention.head_size**-0.5
        query = matrix(attention.query, 1.0 if self.options.qk_norm else scale)
        projections = [query, matrix(attention.key), matrix(attention.value)]
        self.qkv.set_weights(fold(block.norm_0, *zip(*projections)))
        if self.options.qk_norm:
            self.query_affine.assign(scale * np.stack(affine(attention.query_norm)))
            self.key_affine.assign(np.stack(affine(attention.key_norm)))
        if self.windows is not None and self.windows.are_padded:
            biases = [bias for _, bias in projections[1:]]
            self.padding.assign(np.reshape(biases, self.padding.shape))
        for mine, its in ((self.rotary, attention.rotary), (self.relative, attention.relative)):
            if mine is not None:
                mine.set_weights(its.get_weights())
        if self.options.parallel:
            scales = block.layer_scale_0, block.layer_scale_0
            self.take_rest(attention, block.norm_0, block.mlp, scales)
        else:
            scales = block.layer_scale_0, block.layer_scale_1
            self.take_rest(attention, block.norm_2, block.mlp, scales)

    def call(self, x, size=None):
        tokens, width = x.shape[1:]
        x = ops.reshape(x, (-1, width))
        normal = self.normal(x)
        query, key, value = self._heads(normal, tokens)
        if self.windows is None:
            y, weights = self._attend(query, key, value, size)
        else:
            y, weights = self._attend_in_windows(self.windows, query, key, value), None
        y = ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (-1, width))  # (B·N, D)
        x = x + self.project(y)
        if self.options.parallel:
            x = x + self.feed_forward(normal)
        if merges := self.merged or size is not None:
            x, size = self._merge(ops.reshape(x, (-1, tokens, width)), size, key)
            x, tokens = ops.reshape(x, (-1, width)), tokens - self.merged
        x = x if self.options.parallel else self.mlp(x)
        x = ops.reshape(x, (-1, tokens, width))
        if self.with_weights:
            return x, ops.mean(weights, axis=1)
        return (x, size) if merges else x

    def _merge(self, x, size, key):
        metric = ops.mean(key, axis=1)  # (B, N, d)
        size = ops.ones_like(x[..., :1]) if size is None else size
        return token_merging.merge(x, size, metric, self.merged, self.prefix)

    def _heads(self, x, tokens):
        """`(B·N, D)` -> query, key and value `(B, H, N, d)`."""
        size = x.shape[-1] // self.num_heads
        x = ops.reshape(self.qkv(x), (-1, tokens, 3, self.num_heads, size))
        x = ops.transpose(x, (2, 0, 3, 1, 4))  # one transposition makes the slices contiguous
        query, key, value = (ops.reshape(x[i : i + 1], (-1, *x.shape[2:])) for i in range(3))
        if self.options.qk_norm:
            query, key = (
                self.normal(heads) * weight[0] + weight[1]
                for heads, weight in ((query, self.query_affine), (key, self.key_affine))
            )
        if self.rotary is not None:
            query, key = (self.rotary.rotate_heads_first(heads) for heads in (query, key))
        return query, key, value

    def _attend(self, query, key, value, size):
        """Heads `(B, H, N, d)` with scaled queries -> `(B, H, N, d)` and weights `(B, H, N, N)`.

        The weights are None if a kernel of the backend computes the result without them.
        """
        bias, weights = None, None
        if size is not None:
            bias = ops.expand_dims(token_merging.size_bias(size), axis=1)  # (B, 1, 1, N)
        elif self.relative is not None:
            bias = ops.expand_dims(self.relative.biases(), axis=0)  # (1, H, N, N)
        if heads_first_attention is not None and not self.with_weights:
            x = heads_first_attention(query, key, value, scale=1.0, bias=bias)
        else:
            logits = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
            weights = ops.softmax(logits if bias is None else logits + bias, axis=-1)
            x = ops.matmul(weights, value)
        return x, weights

    def _attend_in_windows(self, windows, query, key, value):
        """Attends in windows, each head as an image, with scaled queries; keeps `(B, H, N, d)`."""
        heads, tokens, size = query.shape[1:]
        padding: Sequence = (None, None)
        if windows.are_padded:
            shape = (ops.shape(query)[0], heads, size)
            each = (ops.broadcast_to(self.padding[i : i + 1], shape) for i in range(2))
            padding = [ops.reshape(x, (-1, size)) for x in each]  # (B·H, d)

        def attention(*projections):  # (B·H·W, n, 1, d)
            query, key, value = (ops.reshape(x, (-1, 1, x.shape[1], size)) for x in projections)
            x, _ = self._attend(query, key, value, None)
            return ops.reshape(x, (-1, x.shape[2], 1, size))

        split = (ops.reshape(x, (-1, tokens, 1, size)) for x in (query, key, value))
        x = windows.attend(attention, *split, padding=padding)
        return ops.reshape(x, (-1, heads, tokens, size))

    def compute_output_shape(self, x_shape, size_shape=None):
        batch, tokens, width = x_shape
        remaining = tokens - self.merged
        x_shape = (batch, remaining, width)
        if self.with_weights:
            return x_shape, (batch, remaining, tokens)
        merges = self.merged or size_shape is not None
        return (x_shape, (batch, remaining, 1)) if merges else x_shape

    def get_config(self):
        config = {
            "merged": self.merged,
            "prefix": self.prefix,
            "with_weights": self.with_weights,
            "position_embedding": self.position_embedding,
            "grid": self.grid,
        }
        return {**super().get_config(), **config}
