"""Shared code of the layers: options, checks, normalization, seeds, dropout, configurations."""

import dataclasses
import hashlib
import inspect
import itertools
import numbers
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from vit_keras.layers import backends
from vit_keras.layers.dense import Dense, default_seed, policies, xavier_uniform
from vit_keras.support.annotated import check_choice as check_choice
from vit_keras.support.annotated import check_choices
from vit_keras.support.annotated import pair as pair
from vit_keras.support.keras_internals import FixedSeed


@keras.saving.register_keras_serializable(package="vit_keras")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` whose next mask may be drawn before it is called.

    It takes the arguments of `keras.layers.Dropout`, and keeps the shape.

    Attributes:
        drawn: A seed, a function of the inputs that replaces the call, or None.
    """

    drawn = None

    def call(self, inputs, training=False):
        if self.drawn is None or not training:
            return super().call(inputs, training=training)
        if callable(self.drawn):
            return self.drawn(inputs)
        seed = FixedSeed(self.drawn)
        return keras.random.dropout(inputs, self.rate, noise_shape=self.noise_shape, seed=seed)


def rematerialize(function, x, dropouts):
    """Computes `function(x)` without keeping its inner activations for the backward pass.

    The backward pass computes them again. This function draws the seeds of the dropouts. If
    `function` drew them, the second computation would get other masks and give wrong gradients.

    Args:
        function: A function of one tensor.
        x: The tensor.
        dropouts: The `Dropout` layers that `function` calls in training.

    Returns:
        What `function` returns.
    """

    def replay(x, *seeds):
        for dropout, seed in zip(dropouts, seeds):
            dropout.drawn = seed
        try:
            return function(x)
        finally:
            for dropout in dropouts:
                dropout.drawn = None

    return keras.remat(replay)(x, *(dropout.seed_generator.next() for dropout in dropouts))


def check_positive(**sizes) -> None:
    """Raises ValueError unless every size is a positive int."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"`{name}` must be a positive int. Received: {name}={size!r}")


def check_rates(**rates) -> None:
    """Raises ValueError unless every dropout rate is at least 0 and below 1."""
    for name, rate in rates.items():
        if not _is_number(rate) or not 0 <= rate < 1:
            raise ValueError(f"`{name}` must be at least 0 and below 1. Received: {name}={rate!r}")


def check_kept(**rates) -> None:
    """Raises ValueError unless every rate is above 0 and at most 1."""
    for name, rate in rates.items():
        if not _is_number(rate) or not 0 < rate <= 1:
            raise ValueError(
                f"`{name}` must be the fraction of patches to keep, above 0 and at most 1. "
                f"Received: {name}={rate!r}"
            )


def _is_number(value) -> bool:
    return isinstance(value, numbers.Real)


def check_tokens(layer: keras.layers.Layer, shape: tuple, built: tuple) -> None:
    """Raises ValueError if a sequence differs from the one that a layer was built for.

    Args:
        layer: The layer, which the message names.
        shape: The shape of the sequence.
        built: The shape that the layer was built for; the batch may differ.
    """
    if tuple(shape[1:]) != tuple(built[1:]):
        raise ValueError(
            f"{type(layer).__name__} {layer.name!r} was built for the positions of a sequence "
            f"(B, {', '.join(map(str, built[1:]))}). Received: {tuple(shape)}. "
            "`vit_keras.models.with_image_size` makes a model for images of another size"
        )


@backends.dispatch("layer_norm")
def normalize(x, gamma, beta, epsilon: float):
    """LN(x) γ + β over the last axis."""
    return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)


train_normalize = backends.lookup("train_layer_norm", normalize)


@keras.saving.register_keras_serializable(package="vit_keras")
class LayerNormalization(keras.layers.LayerNormalization):
    """Layer normalization over the last axis, with each backend's fastest operations.

    It takes the arguments of `keras.layers.LayerNormalization`, and keeps the shape.
    """

    def build(self, input_shape):
        super().build(input_shape)
        axes = self.axis if isinstance(self.axis, (list, tuple)) else [self.axis]
        last = [axis % len(input_shape) for axis in axes] == [len(input_shape) - 1]
        self.has_all = last and self.scale and self.center and not self.rms_scaling

    def call(self, inputs, training=None):
        if not self.has_all:
            return super().call(inputs)
        of_mode = train_normalize if training else normalize
        y = of_mode(inputs, self.gamma, self.beta, self.epsilon)
        return ops.cast(y, self.compute_dtype)


def layer_norm(epsilon: float, name: str, **kwargs) -> LayerNormalization:
    """Returns a layer normalization over the last axis."""
    return LayerNormalization(epsilon=epsilon, name=name, **kwargs)


def rms_norm(epsilon: float, name: str, **kwargs) -> keras.layers.RMSNormalization:
    """Returns a normalization by the root mean square over the last axis."""
    return keras.layers.RMSNormalization(epsilon=epsilon, name=name, **kwargs)


NORMALIZATIONS = {"layer": layer_norm, "rms": rms_norm}


QKV_BIASES = {
    "all": ("query", "key", "value"),
    "qv": ("query", "value"),
    "none": (),
}


BLOCK_CHOICES = {"qkv_bias": QKV_BIASES, "mlp": ("gelu", "swiglu"), "norm": NORMALIZATIONS}


@dataclasses.dataclass(frozen=True)
class Rope:
    """How rotary positions turn rows and columns into angles.

    For each axis, pair j of d/4 pairs turns by f_j · t, where f_j = base^(-4j / d) and t is the
    place along the axis.

    Attributes:
        base: The number whose powers are the frequencies.
        offset: Added to the index of a row or column.
        reference: The rows and columns of a grid. Other grids of n places scale their angles to it:
            t = i · reference / n. None means t = i.
        centered: Whether t is 2π times the place of a patch's center in [-1, 1], as in DINOv3;
            `offset` and `reference` then have no effect.
        mixed: Whether each head learns how its angles depend on rows and columns (arXiv 2403.13298,
            Section 3.2, RoPE-Mixed); `base` then only sets the initial frequencies.
        rounded: Whether the periods 1 / f_j are rounded to bfloat16, as in Meta's files of DINOv3.

    Example:
        >>> vit_keras.layers.Rope(base=10000.0, reference=(16, 16)).centered  # of EVA-02
        False
    """

    base: float = 100.0
    offset: float = 0.0
    reference: tuple[int, int] | None = None
    centered: bool = False
    mixed: bool = False
    rounded: bool = False

    def __post_init__(self):
        if self.reference is not None:
            object.__setattr__(self, "reference", tuple(self.reference))


@dataclasses.dataclass(frozen=True)
class BlockOptions:
    """How an encoder block differs from the paper's, whose blocks have the defaults.

    Attributes:
        qkv_bias: Which projections have a bias: "all", "qv" (no bias for the keys, as in BEiT and
            DINOv3) or "none".
        qk_norm: Whether each head normalizes its queries and keys (arXiv 2302.05442).
        attention_norm: Whether attention's result is normalized before its output projection, as in
            EVA-02-CLIP.
        mlp: "gelu", or "swiglu": Dense_1(SiLU(gate(x)) · Dense_0(x)) (arXiv 2002.05202).
        mlp_norm: Whether the hidden units of the MLP are normalized before its last layer, as in
            EVA-02.
        norm: "layer" for layer normalization, or "rms", which neither centers nor has an offset.
        layer_scale: The initial value of a factor for each channel of both residual branches
            (LayerScale, arXiv 2103.17239), or None for no factors.
        parallel: Whether attention and MLP read the same normalized tokens and are added together,
            as in ViT-22B (arXiv 2302.05442).
        rope: A `Rope` or a dictionary of its fields, for rotary positions; None for none.
        window_size: The rows and columns of patches in a window, as in ViTDet (arXiv 2203.16527);
            an int stands for both. The patches of a window attend only to each other. Tokens before
            the patches attend to all tokens, and all tokens attend to them. None means attention
            between all.

    Raises:
        ValueError: If a field has an unsupported value.

    Example:
        >>> options = vit_keras.layers.BlockOptions(layer_scale=1e-5, mlp="swiglu")
        >>> block = vit_keras.layers.EncoderBlock(num_heads=6, mlp_dim=1024, options=options)
    """

    qkv_bias: str = "all"
    qk_norm: bool = False
    attention_norm: bool = False
    mlp: str = "gelu"
    mlp_norm: bool = False
    norm: str = "layer"
    layer_scale: float | None = None
    parallel: bool = False
    rope: Rope | None = None
    window_size: int | tuple[int, int] | None = None

    def __post_init__(self):
        check_choices(self, BLOCK_CHOICES)
        if isinstance(self.rope, dict):
            object.__setattr__(self, "rope", Rope(**self.rope))
        if self.window_size is not None:
            object.__setattr__(self, "window_size", pair(self.window_size, "window_size"))

    @classmethod
    def of(cls, value: Any) -> "BlockOptions":
        """Returns options from options, from a dictionary of some fields, or from None."""
        if type(value) is BlockOptions:
            return value
        if isinstance(value, BlockOptions):
            names = [field.name for field in dataclasses.fields(BlockOptions)]
            return BlockOptions(**{name: getattr(value, name) for name in names})
        return BlockOptions(**(value or {}))


class Configured:
    """Base class of Keras objects whose arguments are attributes of the same names.

    `get_config` returns these attributes, and `from_config` passes them to `__init__`. Objects of
    Keras and dataclasses among them become dictionaries.
    """

    def get_config(self):
        config = super().get_config()  # type: ignore[misc]
        values = {n: getattr(self, n) for n in _argument_names(type(self)) if n not in config}
        return {**config, **{name: _serializable(value) for name, value in values.items()}}

    @classmethod
    def from_config(cls, config):
        restored = {
            name: keras.saving.deserialize_keras_object(value)
            if isinstance(value, dict) and "class_name" in value
            else value
            for name, value in config.items()
        }
        return super().from_config(restored)  # type: ignore[misc]


def _argument_names(kind: type) -> tuple[str, ...]:
    """The names of the arguments of constructors from a class up to Keras' own classes."""
    classes = itertools.takewhile(lambda c: not c.__module__.startswith("keras."), kind.__mro__)
    constructors = [vars(c)["__init__"] for c in classes if "__init__" in vars(c)]
    return tuple(
        parameter.name
        for constructor in constructors
        for parameter in [*inspect.signature(constructor).parameters.values()][1:]
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    )


def _serializable(value):
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return keras.saving.serialize_keras_object(value) if hasattr(value, "get_config") else value


def fold_in(seed: int, name: str) -> int:
    """Derives the seed of a component from the model's seed.

    Args:
        seed: Any int. Nearby seeds give unrelated results.
        name: The name of the component, such as "encoderblock_0" or "kernel".

    Returns:
        A seed in [0, 2³¹).
    """
    digest = hashlib.blake2s(f"{seed}/{name}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") >> 1


def layer_options(seed: int, dtype: Any, name: str) -> dict[str, Any]:
    """Returns the arguments that every layer takes: its seed, its dtype and its name."""
    return {"seed": fold_in(seed, name), "dtype": dtype, "name": name}


class Layer(Configured, keras.layers.Layer):
    """Base class of layers; the output has the shape of the first input unless a layer says so."""

    def _same_shape(self, input_shape):
        return input_shape

    compute_output_shape: Callable[..., Any] = _same_shape  # a layer's own may take several shapes


class SeededLayer(Layer):
    """Base class of layers whose initial weights and dropout follow from one seed.

    Each weight and each sublayer gets its own seed, derived from `seed` and its name.

    Args:
        seed: An int. None draws one from Python's generator, which
            `keras.utils.set_random_seed` seeds.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.
    """

    def __init__(self, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.seed = default_seed() if seed is None else seed

    def fold_in(self, name: str) -> int:
        """Returns the seed of the weight or sublayer called `name`."""
        return fold_in(self.seed, name)

    def sublayer(self, name: str) -> dict:
        """Returns the arguments that every sublayer takes: its seed, its dtype and its name."""
        return layer_options(self.seed, self.dtype_policy, name)

    def dense(self, fan_in: int, fan_out: int, name: str, activation=None, prefix="", **changes):
        """Returns a built dense layer with its own seed, whose kernel starts Xavier uniform."""
        kernel = xavier_uniform(fan_in, fan_out, self.fold_in(f"{name}/kernel"))
        options = {"kernel_initializer": kernel, "dtype": self.dtype_policy, "name": prefix + name}
        dense = Dense(fan_out, activation, **options | changes)
        dense.build((None, fan_in))
        return dense

    def dropout(self, rate: float, name: str, **kwargs):
        """Returns a dropout layer with its own seed; at rate 0 the identity, which builds fast."""
        if rate == 0:
            return _identity
        seed = self.fold_in(name)
        return Dropout(rate, seed=seed, name=name, dtype=self.dtype_policy, **kwargs)

    def get_config(self):
        config = {**super().get_config(), "seed": self.seed}
        return config | {"dtype": keras.dtype_policies.serialize(policies(self))}


def _identity(x, training=None):
    return x
