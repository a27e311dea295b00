"""Position embeddings that are added to the tokens (Appendix D.4).

A sequence is the h·w patches of a `grid` (h, w) in raster order, perhaps after a class token and
other tokens.
"""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from vit_keras.layers.base import SeededLayer, check_tokens, pair
from vit_keras.layers.initializers import Normal
from vit_keras.layers.position_tables import prefix_tokens, sincos_2d
from vit_keras.support.resizing.interpolation import grid_matrices


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


@keras.saving.register_keras_serializable(package="vit_keras")
class AddResizedPositions(keras.layers.Layer):
    """Adds the position embeddings of another layer, interpolated to another grid (Section 3.2).

    It shares the other layer's weights, which gradients reach through the interpolation. A
    model can so take images of two sizes, such as the crops of DINO (arXiv 2104.14294).

    Args:
        positions: The other layer, such as `AddPositionEmbs`.
        grid: Its rows and columns (h, w) of patches.
        new_grid: The rows and columns (h', w') of the tokens that this layer gets.
        interpolation: The name of a rule in `vit_keras.support.resizing.INTERPOLATIONS`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `(B, N', D)` with N' = h'·w', or more with tokens before the patches.

    Output shape:
        `(B, N', D)`.

    Raises:
        ValueError: If N' is less than the number of patches, or there is no such rule.

    Example:
        >>> positions = vit_keras.layers.AddPositionEmbs()
        >>> tokens = positions(keras.Input((197, 384)))  # 14 x 14 patches and a class token
        >>> layer = vit_keras.layers.AddResizedPositions(positions, (14, 14), (6, 6))
        >>> layer(keras.Input((37, 384))).shape
        (None, 37, 384)
    """

    def __init__(
        self,
        positions: keras.layers.Layer,
        grid: int | tuple[int, int],
        new_grid: int | tuple[int, int],
        interpolation: str = "bicubic",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.positions, self.interpolation = positions, interpolation
        self.grid, self.new_grid = pair(grid, "grid"), pair(new_grid, "new_grid")

    def build(self, input_shape):
        _, tokens, width = input_shape
        before = prefix_tokens(tokens, self.new_grid)
        patches = np.kron(*grid_matrices(self.grid, self.new_grid, self.interpolation))
        matrix = np.eye(*(before + count for count in patches.shape))
        matrix[before:, before:] = patches
        self.matrix = matrix.astype("float32")  # (N', N)
        if not self.positions.built:
            self.positions.build((None, matrix.shape[1], width))

    def call(self, x):
        nothing = ops.zeros((1, self.matrix.shape[1], x.shape[-1]), dtype=x.dtype)
        table = self.positions(nothing)  # (1, N, D)
        matrix = ops.cast(self.matrix, table.dtype)
        return x + ops.cast(ops.einsum("mn,bnd->bmd", matrix, table), x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "positions": keras.saving.serialize_keras_object(self.positions),
            "grid": self.grid,
            "new_grid": self.new_grid,
            "interpolation": self.interpolation,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["positions"] = keras.saving.deserialize_keras_object(config["positions"])
        return cls(**config)
