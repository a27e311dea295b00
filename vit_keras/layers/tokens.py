"""Tokens before the patches, which layers add, take or drop (Eq. 1), and maps of patches."""

import keras
from keras import ops

from vit_keras.layers.base import Layer, SeededLayer, check_positive, pair
from vit_keras.layers.initializers import Normal


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
        cls = ops.broadcast_to(self.cls, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([cls, x], axis=1)

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

    Example:
        >>> vit_keras.layers.DropClassToken()(keras.Input((197, 768))).shape
        (None, 196, 768)
    """

    def __init__(self, count: int = 1, keep: int | None = None, **kwargs):
        super().__init__(**kwargs)
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

    Example:
        >>> vit_keras.layers.RegisterTokens(4, after=1)(keras.Input((197, 768))).shape
        (None, 201, 768)
    """

    def __init__(self, num_registers: int, after: int = 0, **kwargs):
        super().__init__(**kwargs)
        check_positive(num_registers=num_registers)
        self.num_registers, self.after = num_registers, after

    def build(self, input_shape):
        self.registers = self.add_weight(
            name="registers",
            shape=(1, self.num_registers, input_shape[-1]),
            initializer=Normal(0.02, self.fold_in("registers")),
        )

    def call(self, x):
        shape = (ops.shape(x)[0], self.num_registers, x.shape[-1])
        registers = ops.broadcast_to(self.registers, shape)
        return ops.concatenate([x[:, : self.after], registers, x[:, self.after :]], axis=1)

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
        self._others(input_shape)

    def call(self, x):
        return ops.reshape(x[:, self._others(x.shape) :], (-1, *self.grid, x.shape[-1]))

    def _others(self, shape):
        """The number of tokens before the patches."""
        rows, columns = self.grid
        if shape[1] < rows * columns:
            raise ValueError(
                f"A map of {rows}x{columns} patches needs {rows * columns} tokens. "
                f"Received: tokens {tuple(shape)}"
            )
        return shape[1] - rows * columns

    def compute_output_shape(self, input_shape):
        return (input_shape[0], *self.grid, input_shape[-1])
