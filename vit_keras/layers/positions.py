"""Position embeddings that are added to the tokens (Appendix D.4).

A sequence holds the h·w patches of a `grid` (h, w) in raster order. A class token and other tokens
may come first.
"""

import math
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from vit_keras.layers.base import Layer, Normal, OnGrid, SeededLayer
from vit_keras.layers.common import pair
from vit_keras.support.interpolation import interpolation_rule

SINCOS_BASE = 10_000.0


def prefix_tokens(tokens: int, grid: tuple[int, int]) -> int:
    """Returns the number of tokens before the patches; raises ValueError if it is negative."""
    before = tokens - math.prod(grid)
    if before < 0:
        raise ValueError(
            f"A `grid` of {grid[0]}x{grid[1]} has {math.prod(grid)} patches, so a sequence needs "
            f"at least as many tokens. Received: {tokens} tokens"
        )
    return before


def sincos_2d(rows: int, columns: int, hidden_size: int, prefix: int = 0) -> np.ndarray:
    """Returns fixed embeddings: sin x, cos x, sin y and cos y at D/4 frequencies each.

    The frequencies fall from 1 to 1/10000, as in big_vision.

    Args:
        rows: The number of rows of patches; y counts them from 0.
        columns: The number of columns of patches; x counts them from 0.
        hidden_size: D, the width of a token, a multiple of 4.
        prefix: T, the number of tokens before the patches. Their embeddings are 0.

    Returns:
        A float32 array `(1, T + rows · columns, D)`.
    """
    y, x = np.mgrid[:rows, :columns]
    quarter = hidden_size // 4
    frequencies = SINCOS_BASE ** -(np.arange(quarter) / max(quarter - 1, 1))
    y, x = (np.outer(axis.ravel(), frequencies) for axis in (y, x))
    table = np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)
    return np.pad(table, [(prefix, 0), (0, 0)]).astype("float32")[None]


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
        self.fix_sequence(input_shape)
        shape = (1, *input_shape[1:])
        self.pos_embedding = self.seeded_weight("pos_embedding", shape, Normal, 0.02)

    def call(self, x):
        return x + self.pos_embedding


@keras.saving.register_keras_serializable(package="vit_keras")
class AddPositionEmbs2D(OnGrid, SeededLayer):
    """Adds learned embeddings of columns and rows (Appendix D.4).

    The first D/2 numbers of a patch's embedding depend on its column, through `x_embedding`
    `(w, D/2)`; the rest depend on its row, through `y_embedding` `(h, D/2)`. The T tokens before
    the patches use `cls_embedding` `(T, D)`. All weights start as N(0, 0.02²).

    Args:
        grid: The rows and columns (h, w) of patches; an int applies to both.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N, D)`.

    Raises:
        ValueError: If N is less than the number of patches.

    Example:
        >>> layer = vit_keras.layers.AddPositionEmbs2D(grid=(8, 16))
        >>> tokens = layer(keras.Input((128, 768)))
        >>> keras.ops.shape(layer.x_embedding), keras.ops.shape(layer.y_embedding)
        ((16, 384), (8, 384))
    """

    def build(self, input_shape):
        _, tokens, width = input_shape
        rows, columns = self.grid
        self.fix_sequence(input_shape)
        add = lambda name, shape: self.seeded_weight(name, shape, Normal, 0.02)
        self.x_embedding = add("x_embedding", (columns, width // 2))
        self.y_embedding = add("y_embedding", (rows, width // 2))
        before = prefix_tokens(tokens, self.grid)
        self.cls_embedding = add("cls_embedding", (before, width)) if before else None

    def call(self, x):
        (rows, columns), half = self.grid, x.shape[-1] // 2
        horizontal = ops.broadcast_to(self.x_embedding, (rows, columns, half))
        vertical = ops.reshape(self.y_embedding, (rows, 1, half))
        vertical = ops.broadcast_to(vertical, (rows, columns, half))
        table = ops.reshape(ops.concatenate([horizontal, vertical], axis=-1), (-1, 2 * half))
        if self.cls_embedding is not None:
            table = ops.concatenate([self.cls_embedding, table], axis=0)
        return ops.add(x, table)


@keras.saving.register_keras_serializable(package="vit_keras")
class AddSinCosPositions(OnGrid, Layer):
    """Adds fixed sines and cosines of columns and rows, as in big_vision.

    `sincos_2d` makes the table, which is 0 for a class token. There are no weights.

    Args:
        grid: The rows and columns (h, w) of patches; an int applies to both.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N, D)`.

    Raises:
        ValueError: If N is less than the number of patches.

    Example:
        >>> layer = vit_keras.layers.AddSinCosPositions(grid=(2, 1))
        >>> tokens = layer(np.zeros((1, 2, 4)))
        >>> keras.ops.convert_to_numpy(tokens).round(2)
        array([[[0.  , 1.  , 0.  , 1.  ],
                [0.  , 1.  , 0.84, 0.54]]], dtype=float32)
    """

    def build(self, input_shape):
        _, tokens, width = input_shape
        self.fix_sequence(input_shape)
        self.table = sincos_2d(*self.grid, width, prefix_tokens(tokens, self.grid))  # (1, N, D)

    def call(self, x):
        return x + ops.cast(self.table, x.dtype)


ADDED: dict[str, Callable[..., keras.layers.Layer]] = {
    "learned": lambda grid, **options: AddPositionEmbs(**options),
    "learned_relative_2d": lambda grid, **options: AddPositionEmbs(**options),  # and in attention
    "learned_2d": AddPositionEmbs2D,
    "sincos2d": lambda grid, seed, **options: AddSinCosPositions(grid, **options),
}


@keras.saving.register_keras_serializable(package="vit_keras")
class AddDynamicPositions(Layer):
    """Adds the position embeddings of another layer, interpolated to the grid of the images.

    The grid is read from the images of each call, so that a model takes images of any size. The
    layer shares the other layer's weights, and gradients reach them through the interpolation.

    Args:
        positions: The layer to interpolate, such as `AddPositionEmbs`.
        grid: That layer's rows and columns (h, w) of patches.
        patch_size: The height and width of a patch in pixels.
        prefix: The number of tokens before the patches.
        interpolation: A key of `vit_keras.support.interpolation.INTERPOLATIONS`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        The tokens `(B, N, D)`, and the images `(B, H, W, C)` that they come from.

    Output shape:
        `(B, N, D)`.

    Raises:
        ValueError: If `interpolation` is unknown.

    Example:
        >>> positions = vit_keras.layers.AddPositionEmbs()
        >>> layer = vit_keras.layers.AddDynamicPositions(positions, (2, 2), 16)
        >>> x = layer(np.zeros((1, 6, 384)), np.zeros((1, 48, 32, 3)))  # 3 x 2 patches
        >>> tuple(x.shape)
        (1, 6, 384)
    """

    def __init__(
        self,
        positions: keras.layers.Layer,
        grid: int | tuple[int, int],
        patch_size: int | tuple[int, int],
        prefix: int = 0,
        interpolation: str = "bilinear",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.positions, self.prefix, self.interpolation = positions, prefix, interpolation
        self.grid, self.patch_size = pair(grid, "grid"), pair(patch_size, "patch_size")
        interpolation_rule(interpolation)

    def build(self, x_shape, images_shape):
        self.table_shape = (1, self.prefix + math.prod(self.grid), x_shape[-1])
        if not self.positions.built:
            self.positions.build(self.table_shape)

    def call(self, x, images):
        table = ops.cast(self.positions(ops.zeros(self.table_shape, x.dtype)), x.dtype)
        resized = ops.reshape(table[0, self.prefix :], (*self.grid, table.shape[-1]))
        for axis, side in enumerate(self.patch_size):
            matrix = self._matrix(self.grid[axis], ops.shape(images)[1 + axis] // side)
            resized = ops.tensordot(ops.cast(matrix, x.dtype), resized, axes=(1, axis))
        resized = ops.transpose(resized, (1, 0, 2))  # (w', h', D) -> (h', w', D)
        resized = ops.reshape(resized, (1, -1, table.shape[-1]))
        return x + ops.concatenate([table[:, : self.prefix], resized], axis=1)

    def _matrix(self, old, new):
        """The matrix `(new, old)`; an unchanged grid keeps its points, even with an offset."""
        points, index = (ops.arange(count, dtype="float32") for count in (old, new))
        is_same = ops.equal(index[-1:], old - 1)
        unchanged = ops.cast(ops.equal(index[:, None], points), "float32")
        return ops.where(is_same, unchanged, interpolation_rule(self.interpolation)(old, new, ops))

    def compute_output_shape(self, x_shape, images_shape):
        return x_shape


ADDED_LAYERS = (AddPositionEmbs, AddPositionEmbs2D, AddSinCosPositions)

# The names of the layers that add to the inputs of the blocks, by placement.
POSITION_NAMES = {"stem": "posembed_input", "every": "posembed_{}", "shared": "posembed_shared"}
