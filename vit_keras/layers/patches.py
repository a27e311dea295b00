"""Tokens from images: patches and the class token (Eq. 1)."""

import keras
from keras import ops

from vit_keras.initializers import lecun_normal
from vit_keras.layers.base import SeededLayer, check_positive, pair
from vit_keras.layers.dense import linear


@keras.saving.register_keras_serializable(package="vit_keras")
class PatchEmbedding(SeededLayer):
    """Projects each patch of an image linearly (Eq. 1).

    The kernel has the layout of the equivalent convolution, `(p_h, p_w, C, D)`, as published. It
    starts LeCun normal.

    Args:
        hidden_size: D, the width of a token.
        patch_size: The height and width of a patch in pixels; an int stands for both.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, H, W, C)`.

    Output shape:
        `(B, N, D)` with N = H/p_h · W/p_w, patch by patch in raster order.

    Raises:
        ValueError: If `patch_size` does not divide the image, if the height or the width of the
            image is not known, or if the layer was built for another number of channels.

    Example:
        >>> vit_keras.layers.PatchEmbedding(768, patch_size=16)(keras.Input((224, 224, 3))).shape
        (None, 196, 768)
    """

    def __init__(self, hidden_size: int, patch_size: int | tuple[int, int], **kwargs):
        super().__init__(**kwargs)
        check_positive(hidden_size=hidden_size)
        self.hidden_size = hidden_size
        self.patch_size = pair(patch_size, "patch_size")

    def grid(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Returns the rows and columns of patches in an image of (height, width) pixels."""
        if None in image_size:
            raise ValueError(
                "The height and width of the images must be known when a Vision Transformer is "
                f"built; give them as `image_size`. Received: image_size={tuple(image_size)}"
            )
        if any(size % patch for size, patch in zip(image_size, self.patch_size)):
            raise ValueError(
                "`patch_size` must divide `image_size`. "
                f"Received: patch_size={self.patch_size}, image_size={tuple(image_size)}"
            )
        rows, columns = (size // patch for size, patch in zip(image_size, self.patch_size))
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
        (rows, columns), (height, width) = self.grid(images.shape[1:3]), self.patch_size
        x = ops.reshape(images, (-1, rows, height, columns, width, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (B, rows, columns, p_h, p_w, C)
        x = linear(x, self.kernel, self.bias)  # (B, rows, columns, D)
        return ops.reshape(x, (-1, rows * columns, self.hidden_size))

    def compute_output_shape(self, input_shape):
        rows, columns = self.grid(input_shape[1:3])
        return (input_shape[0], rows * columns, self.hidden_size)

    def get_config(self):
        config = {"hidden_size": self.hidden_size, "patch_size": self.patch_size}
        return {**super().get_config(), **config}


class _TokenLayer(keras.layers.Layer):
    """Base of the layers without arguments."""

    def get_config(self):  # with Keras' default, a dtype policy object could not be saved
        return super().get_config()


@keras.saving.register_keras_serializable(package="vit_keras")
class ClassToken(_TokenLayer):
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
        cls = ops.broadcast_to(self.cls, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([cls, x], axis=1)

    def compute_output_shape(self, input_shape):
        batch, tokens, width = input_shape
        return (batch, tokens + 1, width)


@keras.saving.register_keras_serializable(package="vit_keras")
class TakeClassToken(_TokenLayer):
    """Takes the class token of each image (Eq. 4), or another token.

    Args:
        index: The place of the token. The class token has 0, a distillation token 1.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `(B, 1 + N, D)`.

    Output shape:
        `(B, D)`.

    Example:
        >>> vit_keras.layers.TakeClassToken()(keras.Input((197, 768))).shape
        (None, 768)
    """

    def __init__(self, index: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.index = index

    def call(self, x):
        return ops.reshape(x[:, self.index : self.index + 1], (-1, x.shape[-1]))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[-1])

    def get_config(self):
        return {**super().get_config(), "index": self.index}


@keras.saving.register_keras_serializable(package="vit_keras")
class DropClassToken(_TokenLayer):
    """Drops the class token and keeps the patches.

    Input shape:
        `(B, 1 + N, D)`.

    Output shape:
        `(B, N, D)`.

    Example:
        >>> vit_keras.layers.DropClassToken()(keras.Input((197, 768))).shape
        (None, 196, 768)
    """

    def call(self, x):
        return x[:, 1:]

    def compute_output_shape(self, input_shape):
        batch, tokens, width = input_shape
        return (batch, tokens - 1, width)
