"""Feature maps from tokens."""

import keras
from keras import ops

from vit_keras.layers.base import pair


@keras.saving.register_keras_serializable(package="vit_keras")
class PatchMap(keras.layers.Layer):
    """Lays the tokens of the patches out as a feature map, without the class token.

    Args:
        grid: The rows h and columns w of the patches. `models.with_image_size` replaces them.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `(B, T + h·w, D)`, the T other tokens first.

    Output shape:
        `(B, h, w, D)`.

    Raises:
        ValueError: If `grid` is no pair of sizes, or if there are fewer tokens than patches.

    Example:
        >>> vit_keras.layers.PatchMap((14, 14))(keras.Input((197, 768))).shape
        (None, 14, 14, 768)
    """

    def __init__(self, grid: tuple[int, int], **kwargs):
        super().__init__(**kwargs)
        self.grid = pair(grid, "grid")

    def build(self, input_shape):
        self._others(input_shape)

    def call(self, x):
        return ops.reshape(x[:, self._others(x.shape) :], (-1, *self.grid, x.shape[-1]))

    def _others(self, shape):
        """The number of tokens before the patches."""
        rows, columns = self.grid
        if shape[1] < rows * columns:
            raise ValueError(
                f"A map of {rows}x{columns} patches needs {rows * columns} tokens. "
                f"Received: tokens {tuple(shape)}"
            )
        return shape[1] - rows * columns

    def compute_output_shape(self, input_shape):
        return (input_shape[0], *self.grid, input_shape[-1])

    def get_config(self):
        return {**super().get_config(), "grid": self.grid}
