"""Token merging (ToMe, arXiv 2210.09461): each block averages its r most similar pairs of tokens.

Written with top-k and whole rows, whose shapes are static, so that it runs the same in Keras,
LiteRT and ONNX, and takes little time there.
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
    scores = _scores(metric, class_token)
    order = ops.cast(ops.top_k(-ops.max(scores, axis=-1), scores.shape[1])[1], "int32")
    staying, going = order[:, :-merged], order[:, -merged:]  # even ones, the least similar first
    partner = ops.top_k(_rows(scores, going), 1)[1][..., 0]  # (B, merged); TFLite has no argmax
    partner = ops.cast(partner, "int32")
    means, sizes = _means(x, size, 2 * going, 2 * partner + 1)
    behind = x.shape[1] + ops.arange(merged, dtype="float32")  # the means' places, after the tokens
    places = ops.one_hot(partner, scores.shape[2]) * ops.expand_dims(behind, axis=1)
    places = ops.cast(ops.max(places, axis=1), "int32")  # (B, odds), 0 for those without a pair
    odd = ops.maximum(2 * ops.arange(scores.shape[2], dtype="int32") + 1, places)
    left = ops.concatenate([2 * staying, odd], axis=1)  # (B, N - merged)
    x, size = ops.concatenate([x, means], axis=1), ops.concatenate([size, sizes], axis=1)
    return _rows(x, left), _rows(size, left)


def size_bias(size):
    """What sizes `(B, N, 1)` add to logits, `(B, 1, N)`: n patches take n times the attention."""
    return ops.log(ops.reshape(size, (-1, 1, size.shape[1])))


def _means(x, size, even, odd):
    """What each of the pairs `(B, merged)` becomes, with all others of its odd token; and sizes."""
    together = ops.equal(ops.expand_dims(odd, axis=2), ops.expand_dims(odd, axis=1))
    together = ops.cast(together, "float32")  # (B, merged, merged)
    added, first = _rows(size, even), _rows(x, odd)
    total = together * ops.transpose(added, (0, 2, 1))
    total = _rows(size, odd) + ops.sum(total, axis=2, keepdims=True)
    return first + ops.matmul(together, added * (_rows(x, even) - first)) / total, total


def _scores(metric, class_token):
    """d times the cosines of even with odd tokens `(B, evens, odds)`; lower for the class token.

    As a mean, not a sum, which TFLite would make an operator that its fast kernels lack.
    """
    norm = ops.rsqrt(ops.mean(metric * metric, axis=-1, keepdims=True) + 1e-12)
    even, odd = _even_and_odd(metric * norm)
    scores = ops.matmul(even, ops.transpose(odd, (0, 2, 1)))
    if class_token:  # d times a cosine is at least -d
        first = ops.reshape(ops.one_hot(0, even.shape[1]), (1, -1, 1))
        scores = scores - 3.0 * metric.shape[-1] * first
    return scores


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
