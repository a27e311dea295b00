"""Boxes at the places of patches (OWL-ViT)."""

import keras
import numpy as np
from keras import ops

from vit_keras.layers.base import Layer, pair

SMALL = 1e-4  # added to shares of the image, whose logits are then finite


@keras.saving.register_keras_serializable(package="vit_keras")
class PatchBoxes(Layer):
    """Turns logits of boxes into boxes at the places of patches (arXiv 2205.06230, Section 3.1).

    A box of zeros has the size of its patch, and the center at the patch's lower right corner, as
    in the published code.

    Args:
        grid: The rows and columns (h, w) of patches; an int stands for both.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `(B, h·w, 4)`.

    Output shape:
        `(B, h·w, 4)`: center x, center y, width and height in 0..1.

    Example:
        >>> layer = vit_keras.layers.PatchBoxes(grid=(1, 2))
        >>> keras.ops.convert_to_numpy(layer(np.zeros((1, 2, 4)))).round(2)
        array([[[0.5, 1. , 0.5, 1. ],
                [1. , 1. , 0.5, 1. ]]], dtype=float32)
    """

    def __init__(self, grid: int | tuple[int, int], **kwargs):
        super().__init__(**kwargs)
        self.grid = pair(grid, "grid")

    def build(self, input_shape):
        rows, columns = self.grid
        y, x = np.indices(self.grid).reshape(2, -1) + 1
        ones = np.ones(rows * columns)
        places = (x / columns, y / rows, ones / columns, ones / rows)
        shares = np.stack(places, axis=-1).astype("float32")  # (h·w, 4)
        self.logits = np.log(shares + SMALL) - np.log1p(SMALL - shares)

    def call(self, x):
        return ops.sigmoid(x + ops.cast(self.logits, x.dtype))
