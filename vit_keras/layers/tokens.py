"""Layers that turn patches into tokens, and add, take or drop tokens before them (Eq. 1)."""

import math

import keras
from keras import ops

from vit_keras.layers.base import Layer, Normal, SeededLayer, lecun_normal, linear
from vit_keras.layers.common import check_counts, check_positive, pair
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

    def grid(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Returns the rows and columns of patches in an image of (height, width) pixels.

        With `crop`, an unknown height or width gives None.
        """
        if None in image_size and not self.crop:
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
        self.kernel = self.add_weight(
            name="kernel",
            shape=(height, width, input_shape[-1], self.hidden_size),
            initializer=lecun_normal(height * width * input_shape[-1], self.fold_in("kernel")),
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=(self.hidden_size,), initializer="zeros")

    def call(self, images):
        self.grid(images.shape[1:3])
        height, width, channels, _ = self.kernel.shape
        rows, columns = (n // side for n, side in zip(ops.shape(images)[1:3], self.patch_size))
        if self.crop:
            images = images[:, : rows * height, : columns * width]
        # No tensor has more than four axes, which is all that many accelerators of phones take.
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


def _more(tokens, count):
    """`tokens + count`; None for images of any size."""
    return None if tokens is None else tokens + count


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

    def compute_output_shape(self, input_shape):
        batch, tokens, width = input_shape
        return (batch, _more(tokens, 1), width)


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

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[-1])


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

    def compute_output_shape(self, input_shape):
        batch, tokens, width = input_shape
        return (batch, _more(tokens, -self.count) if self.keep is None else self.keep, width)


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
        self.registers = self.add_weight(
            name="registers",
            shape=(1, self.num_registers, input_shape[-1]),
            initializer=Normal(0.02, self.fold_in("registers")),
        )

    def call(self, x):
        return insert(x, self.registers, self.after)

    def compute_output_shape(self, input_shape):
        batch, tokens, width = input_shape
        return (batch, _more(tokens, self.num_registers), width)


@keras.saving.register_keras_serializable(package="vit_keras")
class PatchMap(Layer):
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

    def __init__(self, grid: tuple[int, int], **kwargs):
        super().__init__(**kwargs)
        self.grid = pair(grid, "grid")

    def build(self, input_shape):
        prefix_tokens(input_shape[1], self.grid)

    def call(self, x):
        before = prefix_tokens(x.shape[1], self.grid)
        return ops.reshape(x[:, before:], (-1, *self.grid, x.shape[-1]))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], *self.grid, input_shape[-1])
