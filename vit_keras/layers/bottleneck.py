"""The bottleneck units of ResNets, as in the published hybrids and in BiT."""

import keras
from keras import ops

from vit_keras.layers.base import SeededLayer, check_choice, check_positive
from vit_keras.layers.std_conv import GroupNorm, StdConv, strided_shape


class _Unit(SeededLayer):
    """1x1, 3x3 and 1x1 convolutions: `(B, H, W, C)` -> `(B, ⌈H/s⌉, ⌈W/s⌉, 4 · filters)`.

    The 3x3 convolution has the stride. If the shape changes, `conv_proj` projects the shortcut.
    """

    padding, gn3_options = "same", {"gamma_initializer": "zeros"}
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
        check_positive(filters=filters, strides=strides)
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

    def _build_convolutions(self, input_shape):
        """Builds the convolutions and returns the shapes between them."""
        inner = (*input_shape[:3], self.filters)
        inner_strided = (*strided_shape(input_shape, self.strides), self.filters)
        self.conv1.build(input_shape)
        self.conv2.build(inner)
        self.conv3.build(inner_strided)
        self.projects = self.strides != 1 or input_shape[-1] != 4 * self.filters
        if self.projects:
            self.conv_proj = self._conv(4 * self.filters, 1, "conv_proj", self.strides)
            self.conv_proj.build(input_shape)
        return inner, inner_strided

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
        inner, inner_strided = self._build_convolutions(input_shape)
        self.gn1.build(inner)
        self.gn2.build(inner_strided)
        self.gn3.build(self.compute_output_shape(input_shape))
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

    A shortcut that needs a projection projects the activated input. It takes the arguments of
    `BottleneckUnit`, whose None means "bit" and 1e-5 here.

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

    padding, gn3_options = "fixed", {}
    defaults = ("bit", 1e-5)

    def build(self, input_shape):
        inner, inner_strided = self._build_convolutions(input_shape)
        self.gn1.build(input_shape)
        self.gn2.build(inner)
        self.gn3.build(inner_strided)

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
        self.units = [self._unit(i, strides if i == 0 else 1) for i in range(num_units)]

    def _unit(self, i, strides):
        unit, name = UNITS[self.activation]
        numerics, named = (self.standardization, self.group_norm_epsilon), name.format(i + 1)
        return unit(self.filters, strides, *numerics, **self.sublayer(named))

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
