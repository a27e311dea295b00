"""Positions inside attention: embeddings added to the logits, or rotations (Appendix D.4).

A sequence holds the h·w patches of a `grid` (h, w) in raster order. A class token and other tokens
may come first.
"""

import keras
import ml_dtypes
import numpy as np
from keras import ops

from vit_keras.layers.base import Normal, OnGrid, SeededLayer, TruncatedNormal
from vit_keras.layers.common import Rope
from vit_keras.layers.positions import prefix_tokens

IN_ATTENTION = ("relative", "relative_2d", "rope2d")


@keras.saving.register_keras_serializable(package="vit_keras")
class RelativeLogits(SeededLayer):
    """Multiplies queries by embeddings of the offsets to all keys (Appendix D.4).

    Row o of the weight `embedding` `(2N - 1, d)` belongs to the offset o - (N - 1) from a query to
    a key. The heads share it, as in arXiv 1803.02155. Offsets count positions in the sequence, with
    a class token at 0. The rows start as N(0, 1/d), as in BoTNet (arXiv 2101.11605), since smaller
    values learn slowly.

    Input shape:
        Queries `(B, N, H, d)`.

    Output shape:
        Logits `(B, H, N, N)`.

    Example:
        >>> layer = vit_keras.layers.RelativeLogits()
        >>> logits = layer(keras.Input((197, 12, 64)))
        >>> logits.shape, keras.ops.shape(layer.embedding)
        ((None, 12, 197, 197), (393, 64))
    """

    def build(self, query_shape):
        _, tokens, _, head_size = query_shape
        self.fix_sequence(query_shape)
        shape = (2 * tokens - 1, head_size)
        self.embedding = self.seeded_weight("embedding", shape, Normal, head_size**-0.5)

    def call(self, query):
        _, tokens, _, size = query.shape
        width = 2 * tokens - 1
        # Reading with rows one element shorter shifts each row by one; gradients need no scatter.
        table = ops.broadcast_to(self.embedding, (tokens, width, size))
        table = ops.reshape(table, (tokens * width, size))
        table = table[tokens - 1 : tokens - 1 + tokens * (width - 1)]
        table = ops.reshape(table, (tokens, width - 1, size))[:, :tokens]  # (N_q, N_k, d)
        return ops.einsum("bqhd,qkd->bhqk", query, table)


def rotary_frequencies(head_size: int, rope: Rope) -> np.ndarray:
    """Returns an axis's frequencies `(d/4,)`; raises ValueError unless 4 divides `head_size`."""
    if head_size % 4:
        raise ValueError(
            "Rotary positions rotate pairs by rows and by columns, so 4 must divide the size of a "
            f"head, hidden_size / num_heads. Received: heads of size {head_size}"
        )
    periods = rope.base ** (np.arange(head_size // 4) / (head_size // 4))
    if rope.rounded:
        periods = periods.astype("float32").astype(ml_dtypes.bfloat16).astype("float32")
    return 1 / periods


def rotary_places(rows: int, columns: int, prefix: int, rope: Rope) -> np.ndarray:
    """Returns each token's row and column, `(2, prefix + rows · columns)`; 0 for the prefix."""
    index = np.indices((rows, columns)).reshape(2, -1)
    counts = np.array([[rows], [columns]])
    if rope.centered:
        places = 2 * np.pi * (2 * (index + 0.5) / counts - 1)
    else:
        scale = 1 if rope.reference is None else np.reshape(rope.reference, (2, 1)) / counts
        places = (index + rope.offset) * scale
    return np.pad(places, [(0, 0), (prefix, 0)])


@keras.saving.register_keras_serializable(package="vit_keras")
class RotaryPositions(OnGrid, SeededLayer):
    """Rotates queries or keys by their positions (axial RoPE, arXiv 2403.13298).

    The numbers i and i + d/2 are rotated as a pair. The angle grows with the row for i < d/4 and
    with the column otherwise, at the d/4 frequencies of `rope`. A logit then depends only on the
    offset between two patches. Tokens before the patches are not rotated. There are no weights,
    except with `rope.mixed`: then each pair's angle is the sum of its row and column, weighted by
    the learned `frequencies` `(2, H, d/2)`.

    Args:
        grid: The rows and columns (h, w) of patches; an int applies to both.
        rope: A `Rope` or a dictionary of its fields; None for the defaults.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, N, H, d)`.

    Output shape:
        `(B, N, H, d)`.

    Raises:
        ValueError: If 4 does not divide d, or N is less than the number of patches.

    Example:
        >>> layer = vit_keras.layers.RotaryPositions(grid=(1, 3))
        >>> x = keras.ops.convert_to_numpy(layer(np.ones((1, 3, 1, 4))))[0, :, 0]
        >>> (x @ x.T).round(2)  # equal offsets have equal logits
        array([[4.  , 3.08, 1.17],
               [3.08, 4.  , 3.08],
               [1.17, 3.08, 4.  ]], dtype=float32)
    """

    def __init__(self, grid: int | tuple[int, int], rope: Rope | dict | None = None, **kwargs):
        super().__init__(grid, **kwargs)
        self.rope = rope if isinstance(rope, Rope) else Rope(**(rope or {}))

    def build(self, shape):
        _, tokens, heads, head_size = shape
        self.fix_sequence(shape)
        prefix = prefix_tokens(tokens, self.grid)
        places = rotary_places(*self.grid, prefix, self.rope)  # (2, N)
        frequencies = rotary_frequencies(head_size, self.rope)  # (d/4,)
        if self.rope.mixed:
            self.places, start = places, self._mixed_frequencies(heads, frequencies)
            self.frequencies = self.add_weight(
                name="frequencies", shape=start.shape, initializer=lambda *_, **__: start
            )
        else:
            angles = np.concatenate([np.outer(axis, frequencies) for axis in places], axis=1)
            tables = np.cos(angles[:, None]), np.sin(angles[:, None])  # (N, 1, d/2) each
            self.cos, self.sin = (table.astype("float32") for table in tables)

    def _mixed_frequencies(self, heads, frequencies):
        """The axial frequencies, turned by a random angle in each head: `(2, H, d/2)`."""
        turn = np.random.Generator(np.random.Philox(key=self.fold_in("frequencies"))).random(heads)
        turn = 2 * np.pi * turn[:, None] + np.repeat([0, np.pi / 2], len(frequencies))  # (H, d/2)
        return (np.stack([np.cos(turn), np.sin(turn)]) * np.tile(frequencies, 2)).astype("float32")

    def call(self, x):
        if self.rope.mixed:
            places = ops.cast(self.places, self.frequencies.dtype)
            angles = ops.einsum("an,ahk->nhk", places, ops.convert_to_tensor(self.frequencies))
            cos_and_sin = ops.cos(angles), ops.sin(angles)  # (N, H, d/2)
        else:
            cos_and_sin = self.cos, self.sin
        cos, sin = (ops.cast(table, x.dtype) for table in cos_and_sin)
        first, second = ops.split(x, 2, axis=-1)
        return ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


@keras.saving.register_keras_serializable(package="vit_keras")
class RelativeBias2D(OnGrid, SeededLayer):
    """Adds a learned bias to the attention logits for each offset in rows and columns.

    The weight `table` is `((2h - 1)(2w - 1) + 3, H)`. Row (dy + h - 1)(2w - 1) + dx + w - 1 belongs
    to the offset (dy, dx) from a key to its query. The last three rows belong to the class token as
    query, as key, and as both (BEiT, arXiv 2106.08254; its published code). All rows start as
    N(0, 0.02²), truncated.

    Args:
        grid: The rows and columns (h, w) of patches; an int applies to both.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        Queries `(B, N, H, d)`; only their shape is read. N is h·w, or one more for a class token.

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

    def build(self, query_shape):
        _, tokens, heads, _ = query_shape
        self.fix_sequence(query_shape)
        prefix = prefix_tokens(tokens, self.grid)
        if prefix > 1:
            raise ValueError(
                "Relative biases cover only the patches and a class token before them. Received: "
                f"{tokens} tokens for {self.grid[0]}x{self.grid[1]} patches. Leave out registers "
                "and the distillation token, or use other positions"
            )
        self.index = relative_index(self.grid)[1 - prefix :, 1 - prefix :]  # (N, N)
        rows, columns = self.grid
        shape = ((2 * rows - 1) * (2 * columns - 1) + 3, heads)
        self.table = self.seeded_weight("table", shape, TruncatedNormal, 0.02)

    def call(self, query):
        tokens, heads = len(self.index), self.table.shape[1]
        bias = ops.take(self.table, self.index.ravel(), axis=0)  # (N·N, H)
        return ops.transpose(ops.reshape(bias, (tokens, tokens, heads)), (2, 0, 1))


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
