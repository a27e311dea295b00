"""What tells tokens their places: added embeddings, relative logits and rotations (D.4).

A sequence is the h·w patches of a `grid` (h, w) in raster order, after a class token or none.
"""

import math

import keras
import numpy as np
from keras import ops

from vit_keras.initializers import Normal
from vit_keras.layers.base import SeededLayer, pair
from vit_keras.layers.position_tables import rotary_angles_2d, sincos_2d


def class_tokens(tokens: int, grid: tuple[int, int]) -> int:
    """0 or 1, the tokens before the patches of `grid`; ValueError for another length."""
    before = tokens - math.prod(grid)
    if before not in (0, 1):
        raise ValueError(
            f"A `grid` of {grid[0]}x{grid[1]} has {math.prod(grid)} patches, and at most a class "
            f"token comes before them. Received: {tokens} tokens"
        )
    return before


@keras.saving.register_keras_serializable(package="vit_keras")
class AddPositionEmbs(SeededLayer):
    """Adds a learned embedding to each position: `(B, N, D)` -> `(B, N, D)` (Eq. 1).

    `pos_embedding` is `(1, N, D)` and starts as N(0, 0.02²).
    """

    def build(self, input_shape):
        self.pos_embedding = self.add_weight(
            name="pos_embedding",
            shape=(1, *input_shape[1:]),
            initializer=Normal(0.02, self.fold_in("pos_embedding")),
        )

    def call(self, x):
        return x + self.pos_embedding

    def compute_output_shape(self, input_shape):
        return input_shape


@keras.saving.register_keras_serializable(package="vit_keras")
class AddPositionEmbs2D(SeededLayer):
    """Adds learned embeddings of columns and rows: `(B, N, D)` -> `(B, N, D)` (Appendix D.4).

    A patch gets D/2 numbers of its column, `x_embedding` `(w, D/2)`, and then D/2 of its row,
    `y_embedding` `(h, D/2)`; a class token its own `cls_embedding` `(1, D)`. All start as
    N(0, 0.02²). ValueError: D must be even.
    """

    def __init__(self, grid: int | tuple[int, int], **kwargs):
        super().__init__(**kwargs)
        self.grid = pair(grid, "grid")

    def build(self, input_shape):
        _, tokens, width = input_shape
        if width % 2:
            raise ValueError(
                "Position embeddings 'learned_2d' have two halves, so `hidden_size` must be even. "
                f"Received: hidden_size={width}"
            )
        rows, columns = self.grid
        self.x_embedding = self._table("x_embedding", (columns, width // 2))
        self.y_embedding = self._table("y_embedding", (rows, width // 2))
        before = class_tokens(tokens, self.grid)
        self.cls_embedding = self._table("cls_embedding", (before, width)) if before else None

    def _table(self, name, shape):
        return self.add_weight(name=name, shape=shape, initializer=Normal(0.02, self.fold_in(name)))

    def call(self, x):
        (rows, columns), half = self.grid, x.shape[-1] // 2
        horizontal = ops.broadcast_to(self.x_embedding, (rows, columns, half))
        vertical = ops.reshape(self.y_embedding, (rows, 1, half))
        vertical = ops.broadcast_to(vertical, (rows, columns, half))
        table = ops.reshape(ops.concatenate([horizontal, vertical], axis=-1), (-1, 2 * half))
        if self.cls_embedding is not None:
            table = ops.concatenate([self.cls_embedding, table], axis=0)
        return x + table

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "grid": self.grid}


@keras.saving.register_keras_serializable(package="vit_keras")
class AddSinCosPositions(keras.layers.Layer):
    """Adds fixed sines and cosines of columns and rows: `(B, N, D)` -> `(B, N, D)`.

    The numbers are `sincos_2d`'s, as in big_vision; a class token gets none. There are no
    weights. ValueError: 4 must divide D.
    """

    def __init__(self, grid: int | tuple[int, int], **kwargs):
        super().__init__(**kwargs)
        self.grid = pair(grid, "grid")

    def build(self, input_shape):
        _, tokens, width = input_shape
        self.table = sincos_2d(*self.grid, width, class_tokens(tokens, self.grid))  # (1, N, D)

    def call(self, x):
        return x + ops.cast(self.table, x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "grid": self.grid}


@keras.saving.register_keras_serializable(package="vit_keras")
class RelativeLogits(SeededLayer):
    """Logits of queries with the offsets to all keys: `(B, N, H, d)` -> `(B, H, N, N)` (D.4).

    Row o of `embedding` `(2N - 1, d)`, which the heads share as in arXiv 1803.02155, belongs to the
    offset o - (N - 1) of a key from its query. Positions are those in the sequence, a class token's
    is 0. The rows start as N(0, 1/d), as in BoTNet (arXiv 2101.11605): small ones learn late.
    ValueError: there must be two tokens.
    """

    def build(self, query_shape):
        _, tokens, _, head_size = query_shape
        if tokens < 2:
            raise ValueError(
                "Relative position embeddings are of pairs of tokens; make `image_size` larger "
                f"than `patch_size`. Received: {tokens} token"
            )
        self.embedding = self.add_weight(
            name="embedding",
            shape=(2 * tokens - 1, head_size),
            initializer=Normal(head_size**-0.5, self.fold_in("embedding")),
        )

    def call(self, query):
        _, tokens, _, size = query.shape
        width = 2 * tokens - 1
        # Rows of one number less shift each by one: a gather whose gradient needs no scatter.
        table = ops.broadcast_to(self.embedding, (tokens, width, size))
        table = ops.reshape(table, (tokens * width, size))
        table = table[tokens - 1 : tokens - 1 + tokens * (width - 1)]
        table = ops.reshape(table, (tokens, width - 1, size))[:, :tokens]  # (N_q, N_k, d)
        return ops.einsum("bqhd,qkd->bhqk", query, table)

    def compute_output_shape(self, query_shape):
        batch, tokens, heads, _ = query_shape
        return (batch, heads, tokens, tokens)


@keras.saving.register_keras_serializable(package="vit_keras")
class RotaryPositions(keras.layers.Layer):
    """Turns queries or keys by their places: `(B, N, H, d)` -> `(B, N, H, d)`.

    The pairs (i, i + d/2) turn by the row for i < d/4 and by the column for the rest, through
    `rotary_angles_2d`, so that a logit depends on the offset of two patches alone (axial
    RoPE, arXiv 2403.13298). A class token is not turned. There are no weights. ValueError: 4 must
    divide d.
    """

    def __init__(self, grid: int | tuple[int, int], **kwargs):
        super().__init__(**kwargs)
        self.grid = pair(grid, "grid")

    def build(self, shape):
        _, tokens, _, head_size = shape
        angles = rotary_angles_2d(*self.grid, head_size, class_tokens(tokens, self.grid))
        self.cos, self.sin = np.cos(angles), np.sin(angles)  # (N, 1, d/2)

    def call(self, x):
        cos, sin = ops.cast(self.cos, x.dtype), ops.cast(self.sin, x.dtype)
        first, second = ops.split(x, 2, axis=-1)
        return ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def compute_output_shape(self, shape):
        return shape

    def get_config(self):
        return {**super().get_config(), "grid": self.grid}


ADDED = {
    "learned": lambda grid, **part: AddPositionEmbs(**part),
    "learned_2d": AddPositionEmbs2D,
    "sincos2d": lambda grid, seed, **part: AddSinCosPositions(grid, **part),
}
IN_ATTENTION = ("relative", "rope2d")
