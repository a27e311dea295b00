"""Attention within windows of patches, as in ViTDet (arXiv 2203.16527, Section 3).

The patches of a window attend to each other. Tokens before the patches, such as a class token, are
global, as in arXiv 2103.15358: they attend to all tokens, and every window attends to them.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

from keras import ops


@dataclasses.dataclass(frozen=True)
class Windows:
    """How a grid of patches is divided into windows of equal size.

    Windows that do not divide the grid extend beyond its bottom and right edges, where padding
    takes the place of patches.

    Attributes:
        grid: The rows and columns of patches.
        size: The rows and columns of a window.
    """

    grid: tuple[int, int]
    size: tuple[int, int]

    @property
    def counts(self) -> tuple[int, int]:
        """The number of windows along each side of the grid."""
        down, across = (-(-side // size) for side, size in zip(self.grid, self.size))
        return down, across

    @property
    def count(self) -> int:
        """W, the number of windows."""
        return math.prod(self.counts)

    @property
    def patches(self) -> int:
        """n, the number of patches in a window, including padding."""
        return math.prod(self.size)

    @property
    def are_padded(self) -> bool:
        """Whether the windows do not divide the grid."""
        return self.count * self.patches > math.prod(self.grid)

    def prefix(self, tokens: int) -> int:
        """Returns how many of a sequence's tokens come before the patches."""
        return tokens - math.prod(self.grid)

    def partition(self, x, padding=None):
        """Divides patches into windows: `(B, h·w, D)` -> `(B·W, n, D)`.

        Args:
            x: The patches in raster order.
            padding: The value of patches beyond the grid, `(1, D)` or `(B, D)`; None for zeros.
        """
        (rows, columns), (height, width), (down, across) = self.grid, self.size, self.counts
        channels = x.shape[-1]
        x = ops.reshape(x, (-1, rows, columns, channels))
        if self.are_padded:
            padding = ops.zeros((1, channels), x.dtype) if padding is None else padding
            padding = ops.reshape(padding, (-1, 1, 1, channels))
            x = _pad(x, padding, 2, across * width - columns)
            x = _pad(x, padding, 1, down * height - rows)
        x = ops.reshape(x, (-1, height, across, width * channels))
        x = ops.transpose(x, (0, 2, 1, 3))  # (B·down, across, height, width·D)
        return ops.reshape(x, (-1, self.patches, channels))

    def join(self, x):
        """Joins windows and drops their padding: `(B·W, n, D)` -> `(B, h·w, D)`."""
        (rows, columns), (height, width), (down, across) = self.grid, self.size, self.counts
        channels = x.shape[-1]
        x = ops.reshape(x, (-1, across, height, width * channels))
        x = ops.transpose(x, (0, 2, 1, 3))  # (B·down, height, across, width·D)
        x = ops.reshape(x, (-1, down * height, across * width, channels))
        return ops.reshape(x[:, :rows, :columns], (-1, rows * columns, channels))

    def attend(self, attention: Callable, query, key, value, padding=(None, None)):
        """Computes attention whose memory grows linearly with the number of tokens.

        Args:
            attention: A function that maps queries `(B, N_q, H, d)`, keys and values
                `(B, N_kv, H, d)` to a result `(B, N_q, H, d)`.
            query: Queries of all tokens, `(B, N, H, d)`.
            key: Keys of all tokens, `(B, N, H, d)`.
            value: Values of all tokens, `(B, N, H, d)`.
            padding: The key and the value of padding, `(1, H·d)` or `(B, H·d)`; None for zeros.

        Returns:
            A tensor `(B, N, H, d)`.
        """
        prefix, heads = self.prefix(query.shape[1]), query.shape[2:]
        windows = functools.partial(self._windows, prefix)
        keys, values = map(windows, (key, value), padding)
        x = attention(windows(query, None, with_prefix=False), keys, values)  # (B·W, n, H, d)
        x = self.join(_flat(x))
        x = ops.reshape(x, (-1, x.shape[1], *heads))
        if not prefix:
            return x
        return ops.concatenate([attention(query[:, :prefix], key, value), x], axis=1)

    def _windows(self, prefix, x, padding, with_prefix=True):
        """The tokens of each window, after the global tokens: `(B·W, [T +] n, H, d)`."""
        heads, x = x.shape[2:], _flat(x)
        windows = self.partition(x[:, prefix:], padding)
        if prefix and with_prefix:
            shared = ops.concatenate([x[:, :prefix]] * self.count, axis=1)
            shared = ops.reshape(shared, (-1, prefix, x.shape[-1]))
            windows = ops.concatenate([shared, windows], axis=1)
        return ops.reshape(windows, (-1, windows.shape[1], *heads))


def _pad(x, padding, axis, count):
    """Appends `padding` `(1 or B, 1, 1, D)` to `(B, h, w, D)` along an axis, `count` times."""
    if not count:
        return x
    shape = [ops.shape(x)[0], *x.shape[1:]]
    shape[axis] = count
    return ops.concatenate([x, ops.zeros(shape, x.dtype) + padding], axis=axis)


def _flat(x):
    """`(B, N, H, d)` -> `(B, N, D)`."""
    return ops.reshape(x, (-1, x.shape[1], math.prod(x.shape[2:])))


def check(layer, q_shape: tuple, kv_shape: tuple | None) -> None:
    """Raises ValueError if the windows of an attention layer do not suit the layer or its inputs.

    While Keras copies a model, it hides errors from a constructor, but not those from `build`.
    """
    windows, options = layer.windows, layer.options
    if layer.grid is None:
        rule = "needs the `grid` (rows, columns) of the patches"
    elif layer.position_embedding in ("relative", "relative_2d"):
        rule = "must be None with relative positions, which relate all tokens"
    elif windows.are_padded and (layer.rotary is not None or options.qk_norm):
        rule = (
            "must divide the grid of patches if queries and keys are rotated or normalized, since "
            "padding then has no key"
        )
    elif kv_shape is not None or windows.prefix(q_shape[1]) < 0:
        rule = "needs a sequence that attends to itself and that ends with the patches of the grid"
    else:
        return
    raise ValueError(
        f"`window_size` {rule}. Received: window_size={windows.size}, grid={layer.grid}, "
        f"position_embedding={layer.position_embedding!r}, rope={options.rope}, "
        f"qk_norm={options.qk_norm}, q of shape {tuple(q_shape)} and kv of shape {kv_shape}"
    )


def refuse_weights(layer) -> None:
    """Raises ValueError, since windows have no attention weights between all tokens."""
    raise ValueError(
        "Attention within windows has no weights between all tokens. Received: layer "
        f"{layer.name!r} with window_size={layer.windows.size}. Take the weights of a block that "
        "attends globally, one of `global_blocks`"
    )


def count_pairs(windows: Windows | None, queries: int, tokens: int) -> tuple[int, int]:
    """Counts the queries and the pairs that attention multiplies for one image, with padding.

    Args:
        windows: The windows, or None for attention between all tokens.
        queries: The number of tokens that attend; with windows, all of them.
        tokens: The number of tokens to attend to.

    Returns:
        The number of queries, and the number of pairs of a query and a key.
    """
    if windows is None:
        return queries, queries * tokens
    prefix, patches = windows.prefix(tokens), windows.count * windows.patches
    return prefix + patches, prefix * tokens + patches * (prefix + windows.patches)
