"""Weight-standardised convolutions (arXiv 1903.10520), the ResNets' root and their input."""

import keras
from keras import ops

from vit_keras.initializers import lecun_normal
from vit_keras.layers.base import SeededLayer, check_choice, check_positive, pair

# What a filter less its mean is divided by, from its variance (float32 or wider).
STANDARDIZATIONS = {
    "vit": lambda variance: ops.sqrt(ops.maximum(variance, 1e-30)) + 1e-5,
    "bit": lambda variance: ops.sqrt(variance + 1e-10),
    "timm": lambda variance: ops.sqrt(variance + 1e-8),
}
PADDINGS = ("same", "fixed")


@keras.saving.register_keras_serializable(package="vit_keras")
class StdConv(SeededLayer):
    """Convolution by standardised filters: `(B, H, W, C)` -> `(B, ⌈H/s⌉, ⌈W/s⌉, filters)`.

    Each filter of `kernel`, `(k, k, C, filters)`, has its mean over k, k and C removed and is
    divided by its deviation: std + 1e-5 in the published hybrids ("vit"), √(variance + 1e-10) in
    BiT ("bit"), √(variance + 1e-8) where timm runs the hybrids' weights ("timm"). `padding` is
    "same", which puts the odd pixel last, or "fixed": (k - 1) / 2 zeros on all sides whatever the
    stride. There is no bias. `kernel` starts LeCun normal.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int,
        strides: int = 1,
        padding: str = "same",
        standardization: str = "vit",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive(filters=filters, kernel_size=kernel_size, strides=strides)
        check_choice(padding, PADDINGS, "padding")
        check_choice(standardization, STANDARDIZATIONS, "standardization")
        if kernel_size % 2 == 0:
            raise ValueError(f"`kernel_size` must be odd. Received: kernel_size={kernel_size}")
        self.filters, self.kernel_size, self.strides = filters, kernel_size, strides
        self.padding, self.standardization = padding, standardization
        self.is_folded = False

    def build(self, input_shape):
        size, channels = self.kernel_size, input_shape[-1]
        self.kernel = self.add_weight(
            name="kernel",
            shape=(size, size, channels, self.filters),
            initializer=lecun_normal(size * size * channels, self.fold_in("kernel")),
            autocast=False,  # standardised at full precision, rounded after
        )

    def standardized_kernel(self):
        """The filters that convolve, `(k, k, C, filters)`, in the type of the variables."""
        w = ops.convert_to_tensor(self.kernel)
        if self.is_folded:
            return w
        w = w - ops.mean(w, axis=(0, 1, 2), keepdims=True)
        variance = ops.mean(ops.square(w), axis=(0, 1, 2), keepdims=True)  # (1, 1, 1, filters)
        return w / STANDARDIZATIONS[self.standardization](variance)

    def fold_standardization(self) -> None:
        """Stores the standardized filters in `kernel`, so that inference does not compute them.

        The layer can then neither be trained nor saved as a `.keras` file.
        """
        self.kernel.assign(self.standardized_kernel())
        self.is_folded = True

    def call(self, x):
        kernel = ops.cast(self.standardized_kernel(), self.compute_dtype)
        padding = self.padding
        if padding == "fixed":
            x, padding = pad_with_zeros(x, (self.kernel_size - 1) // 2), "valid"
        return ops.conv(x, kernel, self.strides, padding, data_format="channels_last")

    def compute_output_shape(self, input_shape):
        return (*strided_shape(input_shape, self.strides), self.filters)

    def get_config(self):
        config = {
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
            "standardization": self.standardization,
        }
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="vit_keras")
class RootBlock(SeededLayer):
    """BiT's root, a 7x7/2 convolution and a 3x3/2 max pool: a map of a quarter of the side.

    `(B, H, W, C)` -> `(B, ⌈⌈H/2⌉/2⌉, ⌈⌈W/2⌉/2⌉, filters)`. Both pad with zeros as big_transfer
    does; what is pooled may be negative, so a pool that pads with -inf, as big_vision's, gives
    other values at the borders.
    """

    def __init__(self, filters: int, standardization: str = "bit", **kwargs):
        super().__init__(**kwargs)
        self.filters, self.standardization = filters, standardization
        seed = self.fold_in("conv_root")
        part = {"seed": seed, "name": "conv_root", "dtype": self.dtype_policy}
        self.conv_root = StdConv(filters, 7, 2, "fixed", standardization, **part)

    def build(self, input_shape):
        self.conv_root.build(input_shape)

    def call(self, x):
        x = pad_with_zeros(self.conv_root(x), 1)
        return ops.max_pool(x, 3, strides=2, padding="valid", data_format="channels_last")

    def compute_output_shape(self, input_shape):
        return (*strided_shape(strided_shape(input_shape, 2), 2), self.filters)

    def get_config(self):
        config = {"filters": self.filters, "standardization": self.standardization}
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="vit_keras")
class ResNetInput(keras.layers.Layer):
    """The images of a hybrid, `(B, H, W, C)`, unchanged: one token is `total_stride` pixels.

    Raises ValueError where H or W is not a multiple of `total_stride`, an int or (height, width):
    'same' padding would hide it and give tokens of fewer pixels.
    """

    def __init__(self, total_stride: int | tuple[int, int], **kwargs):
        super().__init__(**kwargs)
        self.total_stride = pair(total_stride, "total_stride")

    def build(self, input_shape):
        size = tuple(input_shape[1:3])
        if None in size:
            raise ValueError(
                "The height and width of the images must be known when a hybrid is built; give "
                f"them as `image_size`. Received: image_size={size}"
            )
        if any(pixels % stride for pixels, stride in zip(size, self.total_stride)):
            fits = tuple(max(1, round(p / s)) * s for p, s in zip(size, self.total_stride))
            raise ValueError(
                "`image_size` must be a multiple of the total stride of the ResNet and its "
                f"patches, {self.total_stride} pixels. Received: image_size={size}; the nearest "
                f"size that fits is {fits}"
            )

    def call(self, x):
        return x

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "total_stride": self.total_stride}


def pad_with_zeros(x, pixels: int):
    """`pixels` zeros on all four sides of `(B, H, W, C)`."""
    return ops.pad(x, ((0, 0), (pixels, pixels), (pixels, pixels), (0, 0)))


def strided_shape(shape, strides: int) -> tuple:
    """(B, ⌈H/s⌉, ⌈W/s⌉) of a shape (B, H, W, C), None where a side is not known."""
    return (shape[0], *(None if side is None else -(-side // strides) for side in shape[1:3]))
