"""The patches of images as tokens (Eq. 1)."""

import math

import keras
from keras import ops

from vit_keras.layers.base import SeededLayer, check_positive, pair
from vit_keras.layers.dense import linear
from vit_keras.layers.initializers import lecun_normal


@keras.saving.register_keras_serializable(package="vit_keras")
class PatchEmbedding(SeededLayer):
    """Projects each patch of an image linearly (Eq. 1).

    The kernel has the published layout, `(p_h, p_w, C, D)`, like the equivalent convolution. It
    starts LeCun normal.

    Args:
        hidden_size: D, the width of a token.
        patch_size: The height and width of a patch in pixels; an int stands for both.
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

    def grid(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Returns the rows and columns of patches in an image of (height, width) pixels.

        With `crop`, they are None where the height or the width is.
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
        self._check(input_shape)
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

    def _check(self, shape, channels=None):
        if len(shape) != 4 or channels not in (None, shape[-1]):
            raise ValueError(
                f"PatchEmbedding {self.name!r} takes images (B, height, width, "
                f"{channels or 'channels'}). Received: {tuple(shape)}"
            )

    def call(self, images):
        channels = self.kernel.shape[2]
        self._check(images.shape, channels)
        self.grid(images.shape[1:3])
        height, width = self.patch_size
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
