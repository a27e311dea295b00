"""Token merging (ToMe, arXiv 2210.09461): each block averages its r most similar pairs of tokens.

Written with top-k, whole rows and one small one-hot product, whose shapes are static, so that it
runs the same in Keras, LiteRT and ONNX, and takes little time there.
"""

import keras
from keras import ops

SCHEDULES = ("constant", "decreasing")


def schedule(merged: int, num_layers: int, kind: str = "constant") -> list[int]:
    """Pairs that each block merges, `merged` on average.

    "constant" is r everywhere, "decreasing" falls linearly from 2r to 0 (Section 3 of the paper):
    as many tokens are merged, earlier, which is faster and loses more accuracy. ValueError for a
    negative `merged` or an unknown `kind`.
    """
    if merged < 0 or kind not in SCHEDULES:
        allowed = " or ".join(map(repr, SCHEDULES))
        raise ValueError(
            f"Token merging takes r >= 0 and a schedule {allowed}. Received: r={merged}, {kind!r}"
        )
    if kind == "constant" or num_layers == 1:
        return [merged] * num_layers
    step = 2 * merged / (num_layers - 1)
    return [int(2 * merged - step * i) for i in range(num_layers)]


def most(tokens: int, class_token: bool) -> int:
    """Pairs that `tokens` tokens can merge at most; a class token is in none."""
    return (tokens - class_token) // 2


def merge(x, size, metric, merged: int, class_token: bool):
    """Bipartite soft matching: `(B, N, D)` -> `(B, N - merged, D)`, and their sizes `(B, N', 1)`.

    Tokens at even places are matched with those at odd ones by the cosine of `metric` `(B, N, d)`;
    the `merged` best pairs become their mean, weighted with `size` `(B, N, 1)`, the patches that a
    token stands for. The class token stays first.
    """
    if merged == 0:
        return x, size
    order, partner = _matching(metric, class_token)
    even, size_even, partner = _rows(x, 2 * order), _rows(size, 2 * order), _rows(partner, order)
    (_, odd), (_, size_odd) = _even_and_odd(x), _even_and_odd(size)
    kept = even.shape[1] - merged
    joins = ops.one_hot(partner[:, kept:, 0], odd.shape[1])  # (B, merged, odds)
    joins = ops.transpose(joins, (0, 2, 1))
    total = size_odd + ops.matmul(joins, size_even[:, kept:])
    added = ops.matmul(joins, even[:, kept:] * size_even[:, kept:])
    odd = (odd * size_odd + added) / total
    x = ops.concatenate([even[:, :kept], odd], axis=1)
    return x, ops.concatenate([size_even[:, :kept], total], axis=1)


def _matching(metric, class_token):
    """The even tokens, least similar first, `(B, evens)`; each one's odd one `(B, evens, 1)`."""
    norm = ops.sqrt(ops.sum(ops.square(metric), axis=-1, keepdims=True) + 1e-12)
    even, odd = _even_and_odd(metric / norm)
    scores = ops.matmul(even, ops.transpose(odd, (0, 2, 1)))  # (B, evens, odds)
    best, partner = ops.top_k(scores, 1)  # (B, evens, 1); TFLite has no operation for an argmax
    best = best[..., 0]
    if class_token:  # a cosine is at least -1
        best = best - 3.0 * ops.reshape(ops.one_hot(0, even.shape[1]), (1, -1))
    order = ops.top_k(-best, even.shape[1])[1]
    return ops.cast(order, "int32"), partner


def _even_and_odd(x):
    """`x[:, ::2]` and `x[:, 1::2]`, by whole rows: steps are slow in TFLite, value by value."""
    tokens, width = x.shape[1:]
    pairs = ops.reshape(x[:, : tokens - tokens % 2], (-1, tokens // 2, 2 * width))
    even, odd = pairs[..., :width], pairs[..., width:]
    return (ops.concatenate([even, x[:, -1:]], axis=1) if tokens % 2 else even), odd


def _rows(x, index):
    """Row `index[b, i]` of each `x[b]`: `(B, N, D)`, `(B, K)` -> `(B, K, D)`."""
    tokens, width = x.shape[1:]
    first = ops.expand_dims(ops.arange(ops.shape(x)[0], dtype="int32") * tokens, axis=1)
    flat = ops.reshape(index + first, (-1,))
    found = ops.take(ops.reshape(x, (-1, width)), flat, axis=0)
    return ops.reshape(found, (-1, index.shape[1], width))


@keras.saving.register_keras_serializable(package="vit_keras")
class WeightedMean(keras.layers.Layer):
    """The mean of all patches, by tokens `(B, N, D)` and their sizes `(B, N, 1)`: `(B, D)`."""

    def call(self, x, size):
        return ops.sum(x * size, axis=1) / ops.sum(size, axis=1)

    def compute_output_shape(self, x_shape, size_shape):
        return (x_shape[0], x_shape[-1])
