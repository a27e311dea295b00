"""Token merging (ToMe, arXiv 2210.09461): each block averages its r most similar pairs of tokens.

Written with top-k and products by one-hot matrices, whose shapes are static, so that it runs the
same in Keras, LiteRT and ONNX: no scatter and no gather.
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
    keep, join = _matching(metric, merged, class_token)
    weighted = ops.concatenate([x * size, size], axis=-1)  # (B, N, D + 1)
    even, odd = weighted[:, ::2], weighted[:, 1::2]
    both = ops.concatenate([ops.matmul(keep, even), odd + ops.matmul(join, even)], axis=1)
    size = both[..., -1:]
    return both[..., :-1] / size, size


def _matching(metric, merged, class_token):
    """Rows that copy the even tokens that stay, and rows that add the others to odd tokens."""
    norm = ops.sqrt(ops.sum(ops.square(metric), axis=-1, keepdims=True) + 1e-12)
    metric = metric / norm
    even, odd = metric[:, ::2], metric[:, 1::2]
    evens, odds = even.shape[1], odd.shape[1]
    scores = ops.matmul(even, ops.transpose(odd, (0, 2, 1)))  # (B, evens, odds)
    if class_token:  # a cosine is at least -1
        scores = scores - 3.0 * ops.reshape(ops.one_hot(0, evens), (1, evens, 1))
    best, partner = ops.top_k(scores, 1)  # (B, evens, 1); TFLite has no operation for an argmax
    order = ops.top_k(-best[..., 0], evens)[1]  # least similar first, so the class token is first
    chosen = ops.one_hot(order, evens)  # (B, evens, evens), a permutation
    gone = chosen[:, evens - merged :]  # (B, merged, evens)
    partners = ops.matmul(gone, ops.one_hot(partner[..., 0], odds))  # (B, merged, odds)
    join = ops.matmul(ops.transpose(partners, (0, 2, 1)), gone)  # (B, odds, evens)
    return chosen[:, : evens - merged], join


@keras.saving.register_keras_serializable(package="vit_keras")
class WeightedMean(keras.layers.Layer):
    """The mean of all patches, by tokens `(B, N, D)` and their sizes `(B, N, 1)`: `(B, D)`."""

    def call(self, x, size):
        return ops.sum(x * size, axis=1) / ops.sum(size, axis=1)

    def compute_output_shape(self, x_shape, size_shape):
        return (x_shape[0], x_shape[-1])
