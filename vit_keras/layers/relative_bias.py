"""Learned biases of attention for each offset between two patches, as in BEiT."""

import keras
import numpy as np
from keras import ops

from vit_keras.initializers import TruncatedNormal
from vit_keras.layers.base import SeededLayer, check_tokens, pair
from vit_keras.layers.position_tables import prefix_tokens


@keras.saving.register_keras_serializable(package="vit_keras")
class RelativeBias2D(SeededLayer):
    """Adds a learned bias to the logits of attention for each offset in rows and columns.

    The weight `table` is `((2h - 1)(2w - 1) + 3, H)`. Its row (dy + h - 1)(2w - 1) + dx + w - 1
    belongs to the offset (dy, dx) of a query from its key. The last three rows belong to the class
    token as query, as key, and as both (BEiT, arXiv 2106.08254; its published code). All start as
    N(0, 0.02²), truncated.

    Args:
        grid: The rows and columns (h, w) of patches; an int stands for both.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        Queries `(B, N, H, d)`, of which the shape alone is read; N is h·w, or one more for a class
        token.

    Output shape:
        Biases `(H, N, N)`.

    Raises:
        ValueError: If N is another number.

    Example:
        >>> layer = vit_keras.layers.RelativeBias2D(grid=(14, 14))
        >>> bias = layer(np.zeros((1, 197, 12, 64)))  # (12, 197, 197)
        >>> tuple(layer.table.shape)
        (732, 12)
    """

    def __init__(self, grid: int | tuple[int, int], **kwargs):
        super().__init__(**kwargs)
        self.grid = pair(grid, "grid")

    def build(self, query_shape):
        _, tokens, heads, _ = query_shape
        self.sequence, prefix = tuple(query_shape), prefix_tokens(tokens, self.grid)
        if prefix > 1:
            raise ValueError(
                "Relative biases know the patches and a class token before them. Received: "
                f"{tokens} tokens for {self.grid[0]}x{self.grid[1]} patches. Leave out registers "
                "and the distillation token, or use other positions"
            )
        self.index = relative_index(self.grid)[1 - prefix :, 1 - prefix :]  # (N, N)
        rows, columns = self.grid
        self.table = self.add_weight(
            name="table",
            shape=((2 * rows - 1) * (2 * columns - 1) + 3, heads),
            initializer=TruncatedNormal(0.02, self.fold_in("table")),
        )

    def call(self, query):
        check_tokens(self, query.shape, self.sequence)
        return self.biases()

    def biases(self):
        """Returns the biases of all pairs of tokens, `(H, N, N)`."""
        tokens, heads = len(self.index), self.table.shape[1]
        bias = ops.take(self.table, self.index.ravel(), axis=0)  # (N·N, H)
        return ops.transpose(ops.reshape(bias, (tokens, tokens, heads)), (2, 0, 1))

    def compute_output_shape(self, query_shape):
        _, tokens, heads, _ = query_shape
        return (heads, tokens, tokens)

    def get_config(self):
        return {**super().get_config(), "grid": self.grid}


def relative_index(grid: tuple[int, int]) -> np.ndarray:
    """Returns the row of the table for each pair of query and key; a class token comes first.

    Args:
        grid: Rows h and columns w of patches.

    Returns:
        An int32 array `(1 + h·w, 1 + h·w)`.
    """
    rows, columns = grid
    y, x = (axis.ravel() for axis in np.mgrid[:rows, :columns])
    dy, dx = (axis[:, None] - axis[None] for axis in (y, x))
    count = (2 * rows - 1) * (2 * columns - 1)
    index = np.empty((1 + rows * columns,) * 2, "int32")
    index[1:, 1:] = (dy + rows - 1) * (2 * columns - 1) + dx + columns - 1
    index[0, :], index[:, 0], index[0, 0] = count, count + 1, count + 2
    return index
