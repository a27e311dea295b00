"""Layers that turn patches into tokens (Eq. 1), and that add, take, drop, mask or restore tokens.

Masked patch prediction (Appendix B.1.2) corrupts patches; masked autoencoders (MAE, arXiv
2111.06377) leave them out. In both, `source` `(B, N)` int32 gives the patch whose token goes to
each of N positions: the position's own index, another one, or N for the learned [mask].
"""

import math

import keras
from keras import ops

from vit_keras.layers.base import Layer, Normal, OnGrid, SeededLayer, lecun_normal, linear
from vit_keras.layers.common import check_counts, check_kept, check_positive, pair
from vit_keras.layers.positions import prefix_tokens


@keras.saving.register_keras_serializable(package="vit_keras")
class PatchEmbedding(SeededLayer):
    """Projects each patch of an image linearly (Eq. 1).

    The kernel has the published layout, `(p_h, p_w, C, D)`, like the equivalent convolution. It
    starts LeCun normal.

    Args:
        hidden_size: D, the width of a token.
        patch_size: The height and width of a patch in pixels; an int applies to both.
        use_bias: Whether to add a bias; CLIP has none.
        crop: Whether to ignore pixels at the right and bottom that do not fill a patch, like a
            convolution without padding. Otherwise such images, and images of an unknown height or
            width, are refused.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, H, W, C)`.

    Output shape:
        `(B, N, D)` with N = ⌊H/p_h⌋ · ⌊W/p_w⌋, in raster order.

    Raises:
        ValueError: If `crop` is False and `patch_size` does not divide the image, or its height or
            width is unknown; or if the layer was built for another number of channels.

    Example:
        >>> vit_keras.layers.PatchEmbedding(768, patch_size=16)(keras.Input((224, 224, 3))).shape
        (None, 196, 768)
    """

    def __init__(
        self,
        hidden_size: int,
        patch_size: int | tuple[int, int],
        use_bias: bool = True,
        crop: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive(hidden_size=hidden_size)
        self.hidden_size, self.use_bias, self.crop = hidden_size, use_bias, crop
        self.patch_size = pair(patch_size, "patch_size")
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def grid(self, image_size: tuple[int, int], known: bool = False) -> tuple[int, int]:
        """Returns the rows and columns of patches in an image of (height, width) pixels.

        With `crop`, an unknown height or width gives None, unless both must be `known`.
        """
        if None in image_size and (known or not self.crop):
            raise ValueError(
                "The height and width of the images must be known when a Vision Transformer is "
                f"built; give them as `image_size`. Received: image_size={tuple(image_size)}"
            )
        pairs = [pair for pair in zip(image_size, self.patch_size) if pair[0] is not None]
        if any(size < patch if self.crop else size % patch for size, patch in pairs):
            raise ValueError(
                f"`patch_size` must {'fit into' if self.crop else 'divide'} `image_size`. "
                f"Received: patch_size={self.patch_size}, image_size={tuple(image_size)}"
            )
        sizes = zip(image_size, self.patch_size)
        rows, columns = (None if size is None else size // patch for size, patch in sizes)
        return rows, columns

    def build(self, input_shape):
        self.input_spec = keras.layers.InputSpec(ndim=4, axes={-1: input_shape[-1]})
        self.grid(input_shape[1:3])
        height, width = self.patch_size
        shape = (height, width, input_shape[-1], self.hidden_size)
        self.kernel = self.seeded_weight("kernel", shape, lecun_normal, math.prod(shape[:3]))
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=(self.hidden_size,), initializer="zeros")

    def call(self, images):
        self.grid(images.shape[1:3])
        height, width, channels, _ = self.kernel.shape
        rows, columns = (n // side for n, side in zip(ops.shape(images)[1:3], self.patch_size))
        if self.crop:
            images = images[:, : rows * height, : columns * width]
        # No tensor has more than four axes, the most that many phone accelerators support.
        x = ops.reshape(images, (-1, height, columns, width * channels))
        x = ops.transpose(x, (0, 2, 1, 3))  # (B·rows, columns, p_h, p_w·C)
        x = ops.reshape(x, (-1, columns, height * width * channels))
        bias = ops.zeros((self.hidden_size,), x.dtype) if self.bias is None else self.bias
        kernel = ops.reshape(self.kernel, (-1, self.hidden_size))
        x = linear(x, kernel, bias)  # (B·rows, columns, D)
        return ops.reshape(x, (-1, rows * columns, self.hidden_size))

    def compute_output_shape(self, input_shape):
        grid = self.grid(input_shape[1:3])
        return (input_shape[0], None if None in grid else math.prod(grid), self.hidden_size)


def insert(x, tokens, after: int = 0):
    """Inserts tokens `(1, T, D)` after the first `after` of each image: `(B, N + T, D)`."""
    tokens = ops.broadcast_to(tokens, (ops.shape(x)[0], *tokens.shape[1:]))
    joined = (x[:, :after], tokens, x[:, after:])
    return ops.concatenate([y for y in joined if y.shape[1] != 0], axis=1)


@keras.saving.register_keras_serializable(package="vit_keras")
class ClassToken(Layer):
    """Prepends one learned token, which starts at 0 (Eq. 1).

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, 1 + N, D)`.

    Example:
        >>> vit_keras.layers.ClassToken()(keras.Input((196, 768))).shape
        (None, 197, 768)
    """

    def build(self, input_shape):
        self.cls = self.add_weight(name="cls", shape=(1, 1, input_shape[-1]), initializer="zeros")

    def call(self, x):
        return insert(x, self.cls)


@keras.saving.register_keras_serializable(package="vit_keras")
class TakeClassToken(Layer):
    """Takes the class token (Eq. 4) or another token of each image.

    Args:
        index: The position of the token: 0 for the class token, 1 for a distillation token.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `(B, 1 + N, D)`.

    Output shape:
        `(B, D)`.

    Raises:
        ValueError: If `index` is not a nonnegative int.

    Example:
        >>> vit_keras.layers.TakeClassToken()(keras.Input((197, 768))).shape
        (None, 768)
    """

    def __init__(self, index: int = 0, **kwargs):
        super().__init__(**kwargs)
        check_counts(index=index)
        self.index = index

    def call(self, x):
        return ops.reshape(x[:, self.index : self.index + 1], (-1, x.shape[-1]))


@keras.saving.register_keras_serializable(package="vit_keras")
class DropClassToken(Layer):
    """Drops the class token, or all tokens before the patches, and keeps the patches.

    Args:
        count: The number of tokens before the patches.
        keep: The number of tokens to keep after them; None keeps all.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `(B, count + N, D)`.

    Output shape:
        `(B, N, D)`, or `(B, keep, D)`.

    Raises:
        ValueError: If a number of tokens is not a nonnegative int.

    Example:
        >>> vit_keras.layers.DropClassToken()(keras.Input((197, 768))).shape
        (None, 196, 768)
    """

    def __init__(self, count: int = 1, keep: int | None = None, **kwargs):
        super().__init__(**kwargs)
        check_counts(count=count, keep=0 if keep is None else keep)
        self.count, self.keep = count, keep

    def call(self, x):
        return x[:, self.count : None if self.keep is None else self.count + self.keep]


@keras.saving.register_keras_serializable(package="vit_keras")
class RegisterTokens(SeededLayer):
    """Adds learned tokens that no classifier reads (registers, arXiv 2309.16588).

    Attention stores information there that it would otherwise store in patches. The weight
    `registers` `(1, R, D)` starts as N(0, 0.02²).

    Args:
        num_registers: R, the number of tokens.
        after: The number of leading tokens, such as 1 for a class token, that stay before the
            registers.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, R + N, D)`.

    Raises:
        ValueError: If `num_registers` is not a positive int, or `after` is not a nonnegative int.

    Example:
        >>> vit_keras.layers.RegisterTokens(4, after=1)(keras.Input((197, 768))).shape
        (None, 201, 768)
    """

    def __init__(self, num_registers: int, after: int = 0, **kwargs):
        super().__init__(**kwargs)
        check_positive(num_registers=num_registers)
        check_counts(after=after)
        self.num_registers, self.after = num_registers, after

    def build(self, input_shape):
        shape = (1, self.num_registers, input_shape[-1])
        self.registers = self.seeded_weight("registers", shape, Normal, 0.02)

    def call(self, x):
        return insert(x, self.registers, self.after)


@keras.saving.register_keras_serializable(package="vit_keras")
class PatchMap(OnGrid, Layer):
    """Arranges the patch tokens as a feature map, without the class token.

    Args:
        grid: The rows h and columns w of the patches. `models.with_image_size` replaces them.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `(B, T + h·w, D)`, with T other tokens first.

    Output shape:
        `(B, h, w, D)`.

    Raises:
        ValueError: If `grid` is not a pair of sizes, or if there are fewer tokens than patches.

    Example:
        >>> vit_keras.layers.PatchMap((14, 14))(keras.Input((197, 768))).shape
        (None, 14, 14, 768)
    """

    def build(self, input_shape):
        prefix_tokens(input_shape[1], self.grid)

    def call(self, x):
        before = prefix_tokens(x.shape[1], self.grid)
        return ops.reshape(x[:, before:], (-1, *self.grid, x.shape[-1]))


class _WithMask(SeededLayer):
    """Base class of layers with a learned token [mask]."""

    def build(self, x_shape, source_shape):
        self.mask = self.seeded_weight("mask", (1, 1, x_shape[-1]), Normal, 0.02)


@keras.saving.register_keras_serializable(package="vit_keras")
class CorruptTokens(_WithMask):
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

    def call(self, x, source):
        return _take(insert(x, self.mask, x.shape[1]), source)


class _OfVisible:
    """Gives a layer the argument `visible`."""

    def __init__(self, visible: int, **kwargs):
        super().__init__(**kwargs)
        check_positive(visible=visible)
        self.visible = visible


@keras.saving.register_keras_serializable(package="vit_keras")
class TakeVisible(_OfVisible, Layer):
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

    def build(self, x_shape, source_shape):
        pass  # Keras' default takes the shape of one input only

    def call(self, x, source):
        before = x.shape[1] - source.shape[1]
        order = ops.argsort(source, axis=1)[:, : self.visible]  # masked ones are N and come last
        patches = _take(x[:, before:], order)
        return ops.concatenate([x[:, :before], patches], axis=1) if before else patches


@keras.saving.register_keras_serializable(package="vit_keras")
class RestoreTokens(_OfVisible, _WithMask):
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

    def call(self, x, source):
        before = x.shape[1] - self.visible
        is_visible = source < source.shape[1]
        rank = ops.cumsum(ops.cast(is_visible, "int32"), axis=1) - 1
        index = ops.where(is_visible, rank, self.visible)
        patches = _take(insert(x[:, before:], self.mask, x.shape[1]), index)
        return ops.concatenate([x[:, :before], patches], axis=1) if before else patches


def _take(x, index):
    """Takes tokens of `(B, N, D)` by their indices `(B, M)`: `(B, M, D)`."""
    return ops.take_along_axis(x, index[:, :, None], axis=1)


@keras.saving.register_keras_serializable(package="vit_keras")
class PatchDropout(SeededLayer):
    """Keeps a random subset of each image's patches in training.

    Of P patches, max(1, round(P · `keep_rate`)) stay, in order, drawn anew for each image and step.
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
        if not training or self.kept(tokens) == tokens:  # unknown, for images of any size on JAX
            return x
        count = self.kept(tokens) - first
        shape = (ops.shape(x)[0], tokens - first)
        numbers = keras.random.uniform(shape, dtype="float32", seed=self.seed_generator)
        places = ops.sort(ops.top_k(numbers, count, sorted=False)[1], axis=-1) + first  # (B, N')
        kept = ops.take_along_axis(x, ops.expand_dims(places, -1), axis=1)
        return ops.concatenate([x[:, :first], kept], axis=1) if first else kept
