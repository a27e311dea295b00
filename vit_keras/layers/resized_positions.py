"""Position embeddings of one grid of patches on another one, inside the model."""

import keras
import numpy as np
from keras import ops

from vit_keras.layers.base import pair
from vit_keras.layers.position_tables import prefix_tokens
from vit_keras.resizing.interpolation import grid_matrices


@keras.saving.register_keras_serializable(package="vit_keras")
class AddResizedPositions(keras.layers.Layer):
    """Adds the position embeddings of another layer, interpolated to another grid (Section 3.2).

    It shares the other layer's weights, which gradients reach through the interpolation. A
    model can so take images of two sizes, such as the crops of DINO (arXiv 2104.14294).

    Args:
        positions: The other layer, such as `AddPositionEmbs`.
        grid: Its rows and columns (h, w) of patches.
        new_grid: The rows and columns (h', w') of the tokens that this layer gets.
        interpolation: The name of a rule in `vit_keras.resizing.INTERPOLATIONS`.
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
