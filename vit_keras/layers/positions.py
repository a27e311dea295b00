"""Position embeddings: added to the tokens, added to the logits, or rotations (Appendix D.4).

A sequence is the h·w patches of a `grid` (h, w) in raster order, perhaps after a class token.
"""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from vit_keras.initializers import Normal
from vit_keras.layers.base import SeededLayer, check_tokens, pair
from vit_keras.layers.position_tables import class_tokens, rotary_angles_2d, sincos_2d


@keras.saving.register_keras_serializable(package="vit_keras")
class AddPositionEmbs(SeededLayer):
    """Adds a learned embedding to each position (Eq. 1).

    The weight `pos_embedding` `(1, N, D)` starts as N(0, 0.02²).

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N, D)`.
    """

    def build(self, input_shape):
        self.pos_embedding = self.add_weight(
            name="pos_embedding",
            shape=(1, *input_shape[1:]),
            initializer=Normal(0.02, self.fold_in("pos_embedding")),
        )

    def call(self, x):
        check_tokens(self, x.shape, self.pos_embedding.shape)
        return x + self.pos_embedding

    def compute_output_shape(self, input_shape):
        return input_shape


@keras.saving.register_keras_serializable(package="vit_keras")
class AddPositionEmbs2D(SeededLayer):
    """Adds learned embeddings of columns and rows (Appendix D.4).

    The first D/2 numbers of a patch come from its column, by `x_embedding` `(w, D/2)`, the others
    from its row, by `y_embedding` `(h, D/2)`. A class token has `cls_embedding` `(1, D)`. All start
    as N(0, 0.02²).

    Args:
        grid: The rows and columns (h, w) of patches; an int stands for both.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N, D)`.

    Raises:
        ValueError: If D is odd, or N is not the number of patches or one more.
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
        self.sequence = tuple(input_shape)
        self.x_embedding = self._table("x_embedding", (columns, width // 2))
        self.y_embedding = self._table("y_embedding", (rows, width // 2))
        before = class_tokens(tokens, self.grid)
        self.cls_embedding = self._table("cls_embedding", (before, width)) if before else None

    def _table(self, name, shape):
        return self.add_weight(name=name, shape=shape, initializer=Normal(0.02, self.fold_in(name)))

    def call(self, x):
        check_tokens(self, x.shape, self.sequence)
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
    """Adds fixed sines and cosines of columns and rows, as in big_vision.

    `position_tables.sincos_2d` makes the table, which is 0 for a class token. There are no weights.

    Args:
        grid: The rows and columns (h, w) of patches; an int stands for both.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N, D)`.

    Raises:
        ValueError: If 4 does not divide D, or N is not the number of patches or one more.
    """

    def __init__(self, grid: int | tuple[int, int], **kwargs):
        super().__init__(**kwargs)
        self.grid = pair(grid, "grid")

    def build(self, input_shape):
        _, tokens, width = input_shape
        self.table = sincos_2d(*self.grid, width, class_tokens(tokens, self.grid))  # (1, N, D)

    def call(self, x):
        check_tokens(self, x.shape, self.table.shape)
        return x + ops.cast(self.table, x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "grid": self.grid}


@keras.saving.register_keras_serializable(package="vit_keras")
class RelativeLogits(SeededLayer):
    """Multiplies queries with embeddings of the offsets to all keys (Appendix D.4).

    Row o of the weight `embedding` `(2N - 1, d)` belongs to the offset o - (N - 1) of a key from
    its query. The heads share it, as in arXiv 1803.02155. Offsets count positions in the sequence,
    where a class token is at 0. The rows start as N(0, 1/d), as in BoTNet (arXiv 2101.11605), since
    smaller ones learn late.

    Input shape:
        Queries `(B, N, H, d)`.

    Output shape:
        Logits `(B, H, N, N)`.

    Raises:
        ValueError: If N is less than 2.
    """

    def build(self, query_shape):
        _, tokens, _, head_size = query_shape
        if tokens < 2:
            raise ValueError(
                "Relative position embeddings need at least two tokens; make `image_size` larger "
                f"than `patch_size`. Received: {tokens} token"
            )
        self.sequence = tuple(query_shape)
        self.embedding = self.add_weight(
            name="embedding",
            shape=(2 * tokens - 1, head_size),
            initializer=Normal(head_size**-0.5, self.fold_in("embedding")),
        )

    def call(self, query):
        check_tokens(self, query.shape, self.sequence)
        _, tokens, _, size = query.shape
        width = 2 * tokens - 1
        # Reading rows that are one shorter shifts each by one, and its gradient needs no scatter.
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
    """Rotates queries or keys by their positions (axial RoPE, arXiv 2403.13298).

    The numbers i and i + d/2 are rotated as a pair, by an angle that grows with the row for i < d/4
    and with the column for the others (`position_tables.rotary_angles_2d`). A logit then depends
    only on the offset between two patches. A class token is not rotated. There are no weights.

    Args:
        grid: The rows and columns (h, w) of patches; an int stands for both.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `(B, N, H, d)`.

    Output shape:
        `(B, N, H, d)`.

    Raises:
        ValueError: If 4 does not divide d, or N is not the number of patches or one more.
    """

    def __init__(self, grid: int | tuple[int, int], **kwargs):
        super().__init__(**kwargs)
        self.grid = pair(grid, "grid")

    def build(self, shape):
        _, tokens, _, head_size = shape
        self.sequence = tuple(shape)
        angles = rotary_angles_2d(*self.grid, head_size, class_tokens(tokens, self.grid))
        self.cos, self.sin = np.cos(angles), np.sin(angles)  # (N, 1, d/2)

    def call(self, x):
        check_tokens(self, x.shape, self.sequence)
        cos, sin = ops.cast(self.cos, x.dtype), ops.cast(self.sin, x.dtype)
        first, second = ops.split(x, 2, axis=-1)
        return ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def compute_output_shape(self, shape):
        return shape

    def get_config(self):
        return {**super().get_config(), "grid": self.grid}


ADDED: dict[str, Callable[..., keras.layers.Layer]] = {
    "learned": lambda grid, **options: AddPositionEmbs(**options),
    "learned_2d": AddPositionEmbs2D,
    "sincos2d": lambda grid, seed, **options: AddSinCosPositions(grid, **options),
}
IN_ATTENTION = ("relative", "rope2d")
