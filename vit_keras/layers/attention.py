"""Multi-head self-attention with the published parameter layouts, and attention within windows.

In windows, as in ViTDet (arXiv 2203.16527, Section 3), the patches of a window attend to each
other. Tokens before the patches, such as a class token, are global, as in arXiv 2103.15358: they
attend to all tokens, and every window attends to them.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable

import keras
from keras import ops

from vit_keras.layers import backends, common
from vit_keras.layers.base import SeededLayer, sizes_of
from vit_keras.layers.positions_in_attention import (
    IN_ATTENTION,
    RelativeBias2D,
    RelativeLogits,
    RotaryPositions,
)
from vit_keras.support.checks import pair

MASKED = -3e4  # a logit whose weight is 0, within float16


def weights_dtype(compute_dtype: str) -> str:
    """Returns the type of the attention weights: the compute type, but at least float32."""
    return "float32" if compute_dtype in ("float16", "bfloat16") else compute_dtype


def specs_with_weights(x, num_heads: int, keys: int | None, compute_dtype: str) -> tuple:
    """The shapes and dtypes of a layer's results: tokens like `x`, and attention weights."""
    weights = (x.shape[0], num_heads, x.shape[1], keys)
    tokens = keras.KerasTensor(x.shape, dtype=compute_dtype)
    return tokens, keras.KerasTensor(weights, dtype=weights_dtype(compute_dtype))


def attend(query, key, value, bias, drop: Callable, compute_dtype: str, offset=None):
    """softmax(q kᵀ + bias) v, with (B, H) as one axis: XLA's fastest form on CPUs.

    Args:
        query: Queries `(B, N_q, H, d)`, already multiplied by 1/√d.
        key: Keys `(B, N_kv, H, d)`.
        value: Values `(B, N_kv, H, d)`.
        bias: Biases that broadcast to the logits, `(B, H, N_q, N_kv)`, or None.
        drop: A function to apply to the weights, such as dropout.
        compute_dtype: The type that the layer computes in.
        offset: Numbers to add to the weights, `(B, H, N_q, N_kv)`, or None.

    Returns:
        The result `(B, N_q, H, d)`, and the weights `(B, H, N_q, N_kv)` before `drop`.
    """
    _, queries, heads, size = sizes_of(query)
    query, key, value = map(_heads_first, (query, key, value))  # (B·H, N, d)
    # On torch, Keras' product of float64 tensors has float32; the operator's has float64.
    matmul = operator.matmul if compute_dtype == "float64" else ops.matmul
    logits = matmul(query, ops.transpose(key, (0, 2, 1)))  # (B·H, N_q, N_kv)
    if bias is not None:
        shape = sizes_of(logits)[1:]
        logits = ops.reshape(logits, (-1, heads, *shape))  # (B, H, N_q, N_kv)
        logits = ops.reshape(logits + ops.cast(bias, logits.dtype), (-1, *shape))
    if keras.backend.standardize_dtype(logits.dtype) in ("float16", "bfloat16"):
        logits = ops.cast(logits, "float32")
    weights = ops.cast(ops.softmax(logits, axis=-1), weights_dtype(compute_dtype))
    weights = ops.reshape(weights, (-1, heads, *sizes_of(weights)[1:]))  # (B, H, N_q, N_kv)
    weights = weights if offset is None else weights + offset
    dropped = drop(ops.cast(weights, value.dtype))
    dropped = ops.reshape(dropped, (-1, *sizes_of(dropped)[2:]))
    x = ops.reshape(matmul(dropped, value), (-1, heads, queries, size))
    return ops.transpose(x, (0, 2, 1, 3)), weights


def _heads_first(x):
    """`(B, N, H, d)` -> `(B·H, N, d)`."""
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, sizes_of(x)[1], x.shape[3]))


@backends.dispatch("attention")
def fused_attention(query, key, value, scale):
    """Computes softmax(scale q kᵀ) v of `(B, N, H, d)` with one kernel of the backend.

    Returns:
        A tensor `(B, N, H, d)`, or None if the backend has no such kernel. Torch has one
        everywhere, JAX on accelerators, and both JAX and TensorFlow for long sequences.
    """
    return None


@keras.saving.register_keras_serializable(package="vit_keras")
class MultiHeadDotProductAttention(SeededLayer):
    """softmax(q kᵀ / √d) v over H heads of d = D / H (Eq. 2, Appendix A).

    The kernels of `query`, `key` and `value` are `(D, H, d)`, and that of `out` is `(H, d, D)`.
    The kernels start Xavier uniform, the biases at zero.

    Args:
        num_heads: H, the number of heads. It must divide D.
        attention_dropout_rate: The fraction of the weights that dropout sets to 0 in training.
        position_embedding: None; "relative", which adds the logits q rᵀ / √d of `RelativeLogits`;
            "relative_2d", which adds the biases of `RelativeBias2D`; or "rope2d", which rotates q
            and k by `RotaryPositions`, as `options.rope` does.
        grid: The rows and columns (h, w) of patches. Rotary positions, "relative_2d" and windows
            need it.
        options: `BlockOptions`, or a dictionary of its fields. The layer reads `qkv_bias`,
            `qk_norm`, `attention_norm`, `norm`, `rope` and `window_size`.
        layer_norm_epsilon: The number added to the variances of the normalizations in `options`.
        **kwargs: Arguments of `SeededLayer`.

    Call arguments:
        q: The sequence that attends, `(B, N_q, D)`.
        kv: The sequence to attend to, `(B, N_kv, D)`; None means `q`.
        return_attention_weights: Whether to return the weights as well. They have at least float32
            precision and no dropout. Attention within windows has no weights to return.
        attention_mask: Booleans `(B, N_q, N_kv)` or `(B, 1, N_kv)`, true where a query may attend
            to a key, or numbers to add to the logits; None for all. Windows require None.

    Attributes:
        offset: Numbers to add to the weights, `(B, H, N_q, N_kv)`, while a caller differentiates a
            model with respect to them; otherwise None.

    Input shape:
        `(B, N_q, D)`, and `(B, N_kv, D)` if `kv` is given.

    Output shape:
        `(B, N_q, D)`; with `return_attention_weights` also `(B, H, N_q, N_kv)`.

    Raises:
        ValueError: If `num_heads` does not divide D, if `attention_dropout_rate` is not at least 0
            and below 1, if `position_embedding` is unknown, or if windows are given together with
            `kv` or do not support the positions.

    Example:
        >>> layer = vit_keras.layers.MultiHeadDotProductAttention(num_heads=12)
        >>> x, weights = layer(keras.Input((197, 768)), return_attention_weights=True)
        >>> x.shape, weights.shape
        ((None, 197, 768), (None, 12, 197, 197))
    """

    def __init__(
        self,
        num_heads: int,
        attention_dropout_rate: float = 0.0,
        position_embedding: str | None = None,
        grid: tuple[int, int] | None = None,
        options: common.BlockOptions | dict | None = None,
        layer_norm_epsilon: float = 1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        common.check_positive(num_heads=num_heads)
        common.check_rates(attention_dropout_rate=attention_dropout_rate)
        common.check_choice(position_embedding, (None, *IN_ATTENTION), "position_embedding")
        self.position_embedding = position_embedding
        self.grid = None if grid is None else pair(grid, "grid")
        self.options, self.layer_norm_epsilon = common.BlockOptions.of(options), layer_norm_epsilon
        self.windows, self.relative, self.rotary = None, None, None
        size, rope = self.options.window_size, self.options.rope
        if size is not None:  # `build` refuses windows without a grid
            self.windows = Windows(self.grid or (0, 0), pair(size, "window_size"))
        if position_embedding == "relative":
            self.relative = RelativeLogits(**self.sublayer("relative"))
        elif position_embedding == "relative_2d":
            self.relative = RelativeBias2D(pair(self.grid, "grid"), **self.sublayer("relative_2d"))
        if position_embedding == "rope2d" or rope is not None:
            self.rotary = RotaryPositions(pair(self.grid, "grid"), rope, **self.sublayer("rotary"))
        norm = functools.partial(self.normalization, self.options.norm, layer_norm_epsilon)
        self.query_norm = norm("query_norm") if self.options.qk_norm else None
        self.key_norm = norm("key_norm") if self.options.qk_norm else None
        self.norm = norm("norm") if self.options.attention_norm else None
        self.num_heads, self.offset = num_heads, None
        self.attention_dropout_rate = attention_dropout_rate
        self.attention_dropout = self.dropout(attention_dropout_rate, "attention_dropout")

    def build(self, q_shape, kv_shape=None):
        width = q_shape[-1]
        if width % self.num_heads:
            raise ValueError(
                "`num_heads` must divide `hidden_size`. "
                f"Received: num_heads={self.num_heads}, hidden_size={width}"
            )
        self.head_size = width // self.num_heads
        heads = (self.num_heads, self.head_size)
        for name in ("query", "key", "value"):
            bias_axes = "hk" if name in common.QKV_BIASES[self.options.qkv_bias] else None
            projection = self.heads_dense("bnd,dhk->bnhk", (width,), heads, bias_axes, name)
            setattr(self, name, projection)
        self.out = self.heads_dense("bnhk,hkd->bnd", heads, (width,), "d", "out")
        for norm in filter(None, (self.query_norm, self.key_norm)):
            norm.build((None, None, *heads))
        if self.norm is not None:
            self.norm.build((None, None, width))
        for layer in filter(None, (self.relative, self.rotary)):
            layer.build((q_shape[0], q_shape[1], *heads))
        if self.windows is not None:
            check_windows(self, q_shape, kv_shape)
            self.fix_sequence(q_shape)

    def call(self, q, kv=None, training=None, return_attention_weights=False, attention_mask=None):
        if self.windows is not None:
            check_windows(self, q.shape, None if kv is None else kv.shape)
            if return_attention_weights:
                refuse_weights(self)
        kv = q if kv is None else kv
        query, key, value = self.query(q), self.key(kv), self.value(kv)  # (B, N, H, d)
        if self.query_norm is not None and self.key_norm is not None:
            query = self.query_norm(query, training=training)
            key = self.key_norm(key, training=training)
        if self.rotary is not None:
            query, key = self.rotary(query), self.rotary(key)
        mix = functools.partial(self._mix, training, return_attention_weights, attention_mask)
        if self.windows is None:
            x, weights = mix(query, key, value)
        else:
            of_window = lambda *x: mix(*x)[0]
            # Padding has the biases as its key and value `(1, D)`, like projected zeros.
            row = lambda bias: ops.cast(ops.reshape(bias, (1, -1)), self.compute_dtype)
            biases = (projection.bias for projection in (self.key, self.value))
            padding = [None if bias is None else row(bias) for bias in biases]
            x, weights = self.windows.attend(of_window, query, key, value, padding), None
        if self.norm is not None:
            flat = ops.reshape(x, (-1, x.shape[1], self.num_heads * self.head_size))
            x = ops.reshape(self.norm(flat, training=training), (-1, *x.shape[1:]))
        x = self.out(x)
        return (x, weights) if return_attention_weights else x

    def _mix(self, training, with_weights, mask, query, key, value):
        """softmax(q kᵀ / √d) v `(B, N_q, H, d)`, and the weights or None."""
        dropout = training and self.attention_dropout_rate > 0
        if not (with_weights or dropout or self.relative is not None or mask is not None):
            x = fused_attention(query, key, value, self.head_size**-0.5)
            if x is not None:
                return x, None
        query = query * self.head_size**-0.5
        bias = None if self.relative is None else self.relative(query)
        if mask is not None:
            is_bool = keras.backend.standardize_dtype(mask.dtype) == "bool"
            masked = (ops.where(mask, 0.0, MASKED) if is_bool else mask)[:, None]
            bias = masked if bias is None else bias + masked
        drop = functools.partial(self.attention_dropout, training=training)
        return attend(query, key, value, bias, drop, self.compute_dtype, self.offset)

    def compute_output_spec(self, q, kv=None, return_attention_weights=False, **_):
        keys = (q if kv is None else kv).shape[1]
        specs = specs_with_weights(q, self.num_heads, keys, self.compute_dtype)
        if return_attention_weights and self.windows is not None:
            refuse_weights(self)
        return specs if return_attention_weights else specs[0]


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


def check_windows(layer, q_shape: tuple, kv_shape: tuple | None) -> None:
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
    """Counts the queries and the query-key pairs of attention for one image, including padding.

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
