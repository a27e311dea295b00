"""Layers that corrupt patches, leave them out and restore them.

Masked patch prediction (Appendix B.1.2) corrupts patches; masked autoencoders (MAE, arXiv
2111.06377) leave them out. In both, `source` `(B, N)` int32 gives the patch whose token goes to
each of N positions: the position's own index, another one, or N for the learned [mask].
PatchDropout (arXiv 2208.07220) leaves out patches for speed.
"""

import keras
from keras import ops

from vit_keras.layers.base import Layer, Normal, SeededLayer
from vit_keras.layers.common import check_kept, check_positive
from vit_keras.layers.tokens import insert


@keras.saving.register_keras_serializable(package="vit_keras")
class CorruptTokens(SeededLayer):
    """Replaces an image's tokens with the ones that `source` names (Appendix B.1.2).

    The weight `mask` `(1, 1, D)` starts as N(0, 0.02²).

    Input shape:
        Tokens `(B, N, D)` and their `source` `(B, N)`, int32.

    Output shape:
        `(B, N, D)`.

    Example:
        >>> tokens = np.array([[[1.0], [2.0], [3.0], [4.0]]])
        >>> source = np.array([[0, 3, 2, 4]], "int32")  # the last place gets the mask
        >>> corrupted = vit_keras.layers.CorruptTokens()(tokens, source)
        >>> keras.ops.convert_to_numpy(corrupted)[0, :3, 0]
        array([1., 4., 3.], dtype=float32)
    """

    def build(self, x_shape, source_shape):
        self.mask = _mask(self, x_shape[-1])

    def call(self, x, source):
        return _take(insert(x, self.mask, x.shape[1]), source)


@keras.saving.register_keras_serializable(package="vit_keras")
class TakeVisible(Layer):
    """Takes the patches that are their own source, in order (MAE, arXiv 2111.06377).

    A class token before the patches is kept as well.

    Args:
        visible: The number of patches of each image that are their own source.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        Tokens `(B, N, D)` or `(B, 1 + N, D)`, and their `source` `(B, N)`, int32.

    Output shape:
        `(B, visible, D)` or `(B, 1 + visible, D)`.

    Raises:
        ValueError: If `visible` is not a positive int.

    Example:
        >>> tokens = np.array([[[1.0], [2.0], [3.0], [4.0]]])
        >>> source = np.array([[0, 4, 2, 4]], "int32")  # two patches are masked
        >>> visible = vit_keras.layers.TakeVisible(visible=2)(tokens, source)
        >>> keras.ops.convert_to_numpy(visible)[0, :, 0]
        array([1., 3.], dtype=float32)
    """

    def __init__(self, visible: int, **kwargs):
        super().__init__(**kwargs)
        check_positive(visible=visible)
        self.visible = visible

    def build(self, x_shape, source_shape):
        pass  # Keras' default takes the shape of one input only

    def call(self, x, source):
        before = x.shape[1] - source.shape[1]
        order = ops.argsort(source, axis=1)[:, : self.visible]  # masked ones are N and come last
        patches = _take(x[:, before:], order)
        return ops.concatenate([x[:, :before], patches], axis=1) if before else patches

    def compute_output_shape(self, x_shape, source_shape):
        batch, tokens, width = x_shape
        return (batch, tokens - source_shape[1] + self.visible, width)


@keras.saving.register_keras_serializable(package="vit_keras")
class RestoreTokens(SeededLayer):
    """Puts the tokens of `TakeVisible` back, and [mask] everywhere else (MAE, arXiv 2111.06377).

    The weight `mask` `(1, 1, D)` starts as N(0, 0.02²).

    Args:
        visible: The number of patches that `TakeVisible` took from each image.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        Tokens `(B, visible, D)` or `(B, 1 + visible, D)`, and the `source` `(B, N)`, int32.

    Output shape:
        `(B, N, D)` or `(B, 1 + N, D)`.

    Raises:
        ValueError: If `visible` is not a positive int.

    Example:
        >>> visible = np.array([[[1.0], [3.0]]])
        >>> source = np.array([[0, 4, 2, 4]], "int32")  # two patches are masked
        >>> restored = vit_keras.layers.RestoreTokens(visible=2)(visible, source)  # (1, 4, 1)
        >>> keras.ops.convert_to_numpy(restored)[0, [0, 2], 0]
        array([1., 3.], dtype=float32)
    """

    def __init__(self, visible: int, **kwargs):
        super().__init__(**kwargs)
        check_positive(visible=visible)
        self.visible = visible

    def build(self, x_shape, source_shape):
        self.mask = _mask(self, x_shape[-1])

    def call(self, x, source):
        before = x.shape[1] - self.visible
        is_visible = source < source.shape[1]
        rank = ops.cumsum(ops.cast(is_visible, "int32"), axis=1) - 1
        index = ops.where(is_visible, rank, self.visible)
        patches = _take(insert(x[:, before:], self.mask, x.shape[1]), index)
        return ops.concatenate([x[:, :before], patches], axis=1) if before else patches

    def compute_output_shape(self, x_shape, source_shape):
        batch, tokens, width = x_shape
        return (batch, tokens - self.visible + source_shape[1], width)


def _mask(layer, width):
    initializer = Normal(0.02, layer.fold_in("mask"))
    return layer.add_weight(name="mask", shape=(1, 1, width), initializer=initializer)


def _take(x, index):
    """Takes tokens of `(B, N, D)` by their indices `(B, M)`: `(B, M, D)`."""
    return ops.take_along_axis(x, index[:, :, None], axis=1)


@keras.saving.register_keras_serializable(package="vit_keras")
class PatchDropout(SeededLayer):
    """Keeps a random subset of each image's patches in training.

    Of P patches, max(1, round(P · `keep_rate`)) stay, in order; each image and step draws its own.
    At inference, all patches stay. No token is scaled. The layer must follow the position
    embeddings. Source: arXiv 2208.07220.

    Args:
        keep_rate: The fraction of the patches to keep, above 0 and at most 1.
        class_tokens: The number of tokens before the patches; they always stay.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N', D)` in training, `(B, N, D)` at inference.

    Raises:
        ValueError: If `keep_rate` is not above 0 and at most 1.

    Example:
        >>> layer = vit_keras.layers.PatchDropout(keep_rate=0.25, class_tokens=1)
        >>> keras.ops.shape(layer(np.ones((2, 197, 8)), training=True))
        (2, 50, 8)
    """

    def __init__(self, keep_rate: float, class_tokens: int = 0, **kwargs):
        super().__init__(**kwargs)
        check_kept(keep_rate=keep_rate)
        self.keep_rate, self.class_tokens = keep_rate, class_tokens
        self.seed_generator = keras.random.SeedGenerator(self.fold_in("patches"))

    def kept(self, tokens: int) -> int:
        """Returns how many of `tokens` tokens, including class tokens, stay in training."""
        return self.class_tokens + max(1, round((tokens - self.class_tokens) * self.keep_rate))

    def call(self, x, training=None):
        tokens, first = x.shape[1], self.class_tokens
        count = self.kept(tokens) - first
        if not training or count == tokens - first:
            return x
        shape = (ops.shape(x)[0], tokens - first)
        numbers = keras.random.uniform(shape, dtype="float32", seed=self.seed_generator)
        places = ops.sort(ops.top_k(numbers, count, sorted=False)[1], axis=-1) + first  # (B, N')
        kept = ops.take_along_axis(x, ops.expand_dims(places, -1), axis=1)
        return ops.concatenate([x[:, :first], kept], axis=1) if first else kept
