"""Position embeddings that are added to the tokens (Appendix D.4).

A sequence is the h·w patches of a `grid` (h, w) in raster order, perhaps after a class token and
other tokens.
"""

from collections.abc import Callable

import keras
from keras import ops

from vit_keras.initializers import Normal
from vit_keras.layers.base import SeededLayer, check_tokens, pair
from vit_keras.layers.position_tables import prefix_tokens, sincos_2d


@keras.saving.register_keras_serializable(package="vit_keras")
class AddPositionEmbs(SeededLayer):
    """Adds a learned embedding to each position (Eq. 1).

    The weight `pos_embedding` `(1, N, D)` starts as N(0, 0.02²).

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N, D)`.

    Example:
        >>> layer = vit_keras.layers.AddPositionEmbs()
        >>> tokens = layer(keras.Input((197, 768)))
        >>> keras.ops.shape(layer.pos_embedding)
        (1, 197, 768)
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
    from its row, by `y_embedding` `(h, D/2)`. T tokens before the patches have `cls_embedding`
    `(T, D)`. All start as N(0, 0.02²).

    Args:
        grid: The rows and columns (h, w) of patches; an int stands for both.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N, D)`.

    Raises:
        ValueError: If D is odd, or N is less than the number of patches.

    Example:
        >>> layer = vit_keras.layers.AddPositionEmbs2D(grid=(8, 16))
        >>> tokens = layer(keras.Input((128, 768)))
        >>> keras.ops.shape(layer.x_embedding), keras.ops.shape(layer.y_embedding)
        ((16, 384), (8, 384))
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
        before = prefix_tokens(tokens, self.grid)
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
        ValueError: If 4 does not divide D, or N is less than the number of patches.

    Example:
        >>> layer = vit_keras.layers.AddSinCosPositions(grid=(2, 1))
        >>> tokens = layer(np.zeros((1, 2, 4)))
        >>> keras.ops.convert_to_numpy(tokens).round(2)
        array([[[0.  , 1.  , 0.  , 1.  ],
                [0.  , 1.  , 0.84, 0.54]]], dtype=float32)
    """

    def __init__(self, grid: int | tuple[int, int], **kwargs):
        super().__init__(**kwargs)
        self.grid = pair(grid, "grid")

    def build(self, input_shape):
        _, tokens, width = input_shape
        self.table = sincos_2d(*self.grid, width, prefix_tokens(tokens, self.grid))  # (1, N, D)

    def call(self, x):
        check_tokens(self, x.shape, self.table.shape)
        return x + ops.cast(self.table, x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "grid": self.grid}


ADDED: dict[str, Callable[..., keras.layers.Layer]] = {
    "learned": lambda grid, **options: AddPositionEmbs(**options),
    "learned_2d": AddPositionEmbs2D,
    "sincos2d": lambda grid, seed, **options: AddSinCosPositions(grid, **options),
}
