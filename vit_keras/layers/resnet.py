"""Standardized convolutions, group normalization and units of ResNets, as in BiT."""

import math

import keras
from keras import ops

from vit_keras.layers.base import Layer, SeededLayer, lecun_normal
from vit_keras.layers.common import check_choice, check_positive, pair

# The divisor of a centered filter, computed from its variance (float32 or wider).
STANDARDIZATIONS = {
    "vit": lambda variance: ops.sqrt(ops.maximum(variance, 1e-30)) + 1e-5,
    "bit": lambda variance: ops.sqrt(variance + 1e-10),
    "timm": lambda variance: ops.sqrt(variance + 1e-8),
}
PADDINGS = ("same", "fixed")


@keras.saving.register_keras_serializable(package="vit_keras")
class StdConv(SeededLayer):
    """Convolution with standardized filters and no bias (arXiv 1903.10520).

    Each filter of `kernel`, `(k, k, C, filters)`, is centered over k, k and C and divided by its
    standard deviation. `kernel` starts LeCun normal.

    Args:
        filters: The number of filters.
        kernel_size: k, an odd number of pixels.
        strides: s, the stride in pixels.
        padding: "same", which puts an odd pixel of padding last, or "fixed", which puts (k - 1) / 2
            zeros on every side, whatever the stride.
        standardization: The divisor: "vit" for std + 1e-5, as in the published hybrids; "bit" for
            √(variance + 1e-10), as in BiT; "timm" for √(variance + 1e-8), as timm runs the hybrids'
            weights.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, H, W, C)`.

    Output shape:
        `(B, ⌈H/s⌉, ⌈W/s⌉, filters)`.

    Raises:
        ValueError: If a size is not a positive int, if `kernel_size` is even, or if `padding` or
            `standardization` is unknown.

    Example:
        >>> layer = vit_keras.layers.StdConv(64, kernel_size=7, strides=2)
        >>> layer(keras.Input((224, 224, 3))).shape
        (None, 112, 112, 64)
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
        shape = (self.kernel_size, self.kernel_size, input_shape[-1], self.filters)
        fan_in = math.prod(shape[:3])
        # Without autocast, it is standardized at full precision, and then rounded.
        self.kernel = self.seeded_weight("kernel", shape, lecun_normal, fan_in, autocast=False)

    def standardized_kernel(self):
        """Returns the standardized filters, `(k, k, C, filters)`, in the variables' type."""
        w = ops.convert_to_tensor(self.kernel)
        if self.is_folded:
            return w
        w = w - ops.mean(w, axis=(0, 1, 2), keepdims=True)
        variance = ops.mean(ops.square(w), axis=(0, 1, 2), keepdims=True)  # (1, 1, 1, filters)
        return w / STANDARDIZATIONS[self.standardization](variance)

    def fold_standardization(self) -> None:
        """Stores the standardized filters in `kernel`, so that inference need not compute them.

        The layer can then be neither trained nor saved as a `.keras` file.
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


@keras.saving.register_keras_serializable(package="vit_keras")
class RootBlock(SeededLayer):
    """The root of a ResNet: a 7x7 convolution and a 3x3 max pool, both with stride 2.

    Both pad with zeros, as big_transfer does. The pooled values may be negative, so a pool that
    pads with -inf, as in big_vision, gives different values at the borders.

    Args:
        filters: The number of filters.
        standardization: As in `StdConv`.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, H, W, C)`.

    Output shape:
        `(B, ⌈⌈H/2⌉/2⌉, ⌈⌈W/2⌉/2⌉, filters)`.

    Raises:
        ValueError: If `StdConv` refuses an argument.

    Example:
        >>> vit_keras.layers.RootBlock(64)(keras.Input((224, 224, 3))).shape
        (None, 56, 56, 64)
    """

    def __init__(self, filters: int, standardization: str = "bit", **kwargs):
        super().__init__(**kwargs)
        self.filters, self.standardization = filters, standardization
        named = self.sublayer("conv_root")
        self.conv_root = StdConv(filters, 7, 2, "fixed", standardization, **named)

    def build(self, input_shape):
        self.conv_root.build(input_shape)

    def call(self, x):
        x = pad_with_zeros(self.conv_root(x), 1)
        return ops.max_pool(x, 3, strides=2, padding="valid", data_format="channels_last")


@keras.saving.register_keras_serializable(package="vit_keras")
class ResNetInput(Layer):
    """Returns the images of a hybrid unchanged, after checking their size.

    Without the check, "same" padding would make tokens at the borders cover fewer pixels.

    Args:
        total_stride: The height and width of one token in pixels; an int applies to both.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `(B, H, W, C)`.

    Output shape:
        `(B, H, W, C)`.

    Raises:
        ValueError: If H or W is unknown or not a multiple of `total_stride`.

    Example:
        >>> layer = vit_keras.layers.ResNetInput(total_stride=16)
        >>> layer(keras.Input((224, 224, 3))).shape  # (225, 225, 3) would raise a ValueError
        (None, 224, 224, 3)
    """

    def __init__(self, total_stride: int | tuple[int, int], **kwargs):
        super().__init__(**kwargs)
        self.total_stride = pair(total_stride, "total_stride")

    def build(self, input_shape):
        size = tuple(input_shape[1:3])
        if None in size or any(side % stride for side, stride in zip(size, self.total_stride)):
            raise ValueError(
                "`image_size` must be known when a hybrid is built, and be a multiple of the total "
                f"stride of the ResNet and its patches, {self.total_stride} pixels. Received: "
                f"image_size={size}"
            )

    def call(self, x):
        return x


def pad_with_zeros(x, pixels: int):
    """Pads `(B, H, W, C)` with `pixels` zeros on all four sides."""
    return ops.pad(x, ((0, 0), (pixels, pixels), (pixels, pixels), (0, 0)))


def strided_shape(shape, strides: int) -> tuple:
    """Returns (B, ⌈H/s⌉, ⌈W/s⌉) for a shape (B, H, W, C), with None for an unknown size."""
    return (shape[0], *(None if side is None else -(-side // strides) for side in shape[1:3]))


GROUPS = 32


@keras.saving.register_keras_serializable(package="vit_keras")
class GroupNorm(keras.layers.GroupNormalization):
    """(x - mean) / √(mean((x - mean)²) + epsilon) · γ + β over groups of channels.

    On torch, `keras.layers.GroupNormalization` computes the variance as E[x²] - E[x]², and on every
    backend it scales x before it subtracts the mean. If a group's mean is a hundred times its
    standard deviation, this loses four of the seven digits of float32, and the difference may be
    negative. Source: arXiv 1803.08494, Eqs. 1-3.

    Args:
        groups: The number of groups. It must divide C.
        epsilon: The number added to the variance.
        **kwargs: Other arguments of `keras.layers.GroupNormalization`, except `axis`.

    Input shape:
        `(B, …, C)`.

    Output shape:
        `(B, …, C)`.

    Raises:
        ValueError: If `groups` does not divide C.

    Example:
        >>> layer = vit_keras.layers.GroupNorm(groups=1)
        >>> keras.ops.convert_to_numpy(layer(np.array([[10000.0, 10000.5]]))).round(2)
        array([[-1.,  1.]], dtype=float32)
    """

    def __init__(self, groups: int = GROUPS, epsilon: float = 1e-6, **kwargs):
        super().__init__(groups, axis=-1, epsilon=epsilon, **kwargs)

    def call(self, inputs):
        shape, channels = ops.shape(inputs), inputs.shape[-1]
        x = ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        x = ops.reshape(x, (shape[0], -1, self.groups, channels // self.groups))
        x = x - ops.mean(x, axis=(1, 3), keepdims=True)
        variance = ops.mean(ops.square(x), axis=(1, 3), keepdims=True)  # (B, 1, groups, 1)
        groups = (self.groups, -1)
        gamma, beta = (ops.reshape(ops.cast(w, x.dtype), groups) for w in (self.gamma, self.beta))
        x = x * (ops.rsqrt(variance + self.epsilon) * gamma) + beta
        return ops.cast(ops.reshape(x, shape), self.compute_dtype)

    def get_config(self):
        config = super().get_config()
        del config["axis"]
        return config


class _Unit(SeededLayer):
    """1x1, 3x3 and 1x1 convolutions: `(B, H, W, C)` -> `(B, ⌈H/s⌉, ⌈W/s⌉, 4 · filters)`.

    The 3x3 convolution has the stride. If the shape changes, `conv_proj` projects the shortcut.
    """

    padding, gn3_options = "same", {"gamma_initializer": "zeros"}
    norms_after = 1  # whether each norm follows its convolution
    defaults: tuple[str, float] = ("vit", 1e-6)  # the standardization, and the norms' epsilon

    def __init__(
        self,
        filters: int,
        strides: int = 1,
        standardization: str | None = None,
        group_norm_epsilon: float | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters, self.strides = filters, strides
        self.standardization = standardization or self.defaults[0]
        self.group_norm_epsilon = group_norm_epsilon or self.defaults[1]
        self.conv1 = self._conv(filters, 1, "conv1")
        self.conv2 = self._conv(filters, 3, "conv2", strides)
        self.conv3 = self._conv(4 * filters, 1, "conv3")
        self.gn1, self.gn2 = self._norm("gn1"), self._norm("gn2")
        self.gn3 = self._norm("gn3", **self.gn3_options)

    def _conv(self, filters, kernel_size, name, strides=1):
        sizes, named = (filters, kernel_size, strides), self.sublayer(name)
        return StdConv(*sizes, self.padding, self.standardization, **named)

    def _norm(self, name, **kwargs):
        epsilon, dtype = self.group_norm_epsilon, self.dtype_policy
        return GroupNorm(name=name, epsilon=epsilon, dtype=dtype, **kwargs)

    def build(self, input_shape):
        output = self.compute_output_shape(input_shape)
        shapes = input_shape, (*input_shape[:3], self.filters), (*output[:3], self.filters), output
        self.projects = self.strides != 1 or input_shape[-1] != 4 * self.filters
        for convolution, shape in zip((self.conv1, self.conv2, self.conv3), shapes):
            convolution.build(shape)
        if self.projects:
            self.conv_proj = self._conv(4 * self.filters, 1, "conv_proj", self.strides)
            self.conv_proj.build(input_shape)
        for norm, shape in zip((self.gn1, self.gn2, self.gn3), shapes[self.norms_after :]):
            norm.build(shape)

    def compute_output_shape(self, input_shape):
        return (*strided_shape(input_shape, self.strides), 4 * self.filters)


@keras.saving.register_keras_serializable(package="vit_keras")
class BottleneckUnit(_Unit):
    """The unit of the published hybrids, with post-activation: relu(shortcut + gn3(conv3(…))).

    The scale of `gn3` starts at 0, so the unit initially returns its shortcut.

    Args:
        filters: The number of filters of the first two convolutions.
        strides: s, the stride of the 3x3 convolution in pixels.
        standardization: As in `StdConv`; None means "vit".
        group_norm_epsilon: The number added to the variances of the normalizations; None means
            1e-6.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, H, W, C)`.

    Output shape:
        `(B, ⌈H/s⌉, ⌈W/s⌉, 4 · filters)`.

    Raises:
        ValueError: If `StdConv` refuses an argument.

    Example:
        >>> vit_keras.layers.BottleneckUnit(64, strides=2)(keras.Input((56, 56, 64))).shape
        (None, 28, 28, 256)
    """

    def build(self, input_shape):
        super().build(input_shape)
        if self.projects:
            self.gn_proj = self._norm("gn_proj")
            self.gn_proj.build(self.compute_output_shape(input_shape))

    def call(self, x):
        shortcut = self.gn_proj(self.conv_proj(x)) if self.projects else x
        y = ops.relu(self.gn1(self.conv1(x)))
        y = ops.relu(self.gn2(self.conv2(y)))
        y = self.gn3(self.conv3(y))
        return ops.relu(shortcut + y)


@keras.saving.register_keras_serializable(package="vit_keras")
class PreActivationUnit(_Unit):
    """The unit of BiT (arXiv 1912.11370), with pre-activation: shortcut + conv3(relu(gn3(…))).

    A shortcut that needs a projection projects the activated input. The layer takes
    `BottleneckUnit`'s arguments, but None means "bit" and 1e-5.

    Input shape:
        `(B, H, W, C)`.

    Output shape:
        `(B, ⌈H/s⌉, ⌈W/s⌉, 4 · filters)`.

    Raises:
        ValueError: If `StdConv` refuses an argument.

    Example:
        >>> vit_keras.layers.PreActivationUnit(64)(keras.Input((56, 56, 64))).shape
        (None, 56, 56, 256)
    """

    padding, gn3_options, norms_after = "fixed", {}, 0
    defaults = ("bit", 1e-5)

    def call(self, x):
        y = ops.relu(self.gn1(x))
        shortcut = self.conv_proj(y) if self.projects else x
        y = self.conv1(y)
        y = self.conv2(ops.relu(self.gn2(y)))
        y = self.conv3(ops.relu(self.gn3(y)))
        return shortcut + y


# The class of a stage's units, and their names in the published checkpoints.
UNITS = {"post": (BottleneckUnit, "unit{}"), "pre": (PreActivationUnit, "unit{:02d}")}


@keras.saving.register_keras_serializable(package="vit_keras")
class ResNetStage(SeededLayer):
    """A sequence of bottleneck units. The first one has the stride.

    Args:
        num_units: The number of units.
        activation: "post" for `BottleneckUnit`, "pre" for `PreActivationUnit`.
        **kwargs: Arguments of `SeededLayer`; the units take the other arguments.

    Input shape:
        `(B, H, W, C)`.

    Output shape:
        `(B, ⌈H/s⌉, ⌈W/s⌉, 4 · filters)`.

    Raises:
        ValueError: If `num_units` is not a positive int, if `activation` is unknown, or if the
            units refuse an argument.

    Example:
        >>> stage = vit_keras.layers.ResNetStage(num_units=4, filters=128, strides=2)
        >>> stage(keras.Input((56, 56, 256))).shape
        (None, 28, 28, 512)
    """

    def __init__(
        self,
        num_units: int,
        filters: int,
        strides: int = 1,
        activation: str = "post",
        standardization: str = "vit",
        group_norm_epsilon: float = 1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive(num_units=num_units)
        check_choice(activation, UNITS, "activation")
        self.num_units, self.filters, self.strides = num_units, filters, strides
        self.activation, self.standardization = activation, standardization
        self.group_norm_epsilon = group_norm_epsilon
        unit, name = UNITS[activation]
        options = (standardization, group_norm_epsilon)
        self.units = [
            unit(filters, 1 if i else strides, *options, **self.sublayer(name.format(i + 1)))
            for i in range(num_units)
        ]

    def build(self, input_shape):
        for unit in self.units:
            unit.build(input_shape)
            input_shape = unit.compute_output_shape(input_shape)

    def call(self, x):
        for unit in self.units:
            x = unit(x)
        return x

    def compute_output_shape(self, input_shape):
        return (*strided_shape(input_shape, self.strides), 4 * self.filters)
