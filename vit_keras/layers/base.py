"""Initializers, base classes of layers, and dense layers that multiply a batch's tokens at once.

Keras draws initial weights with the backend's generator, so one seed gives three different models.
These initializers draw the same numbers on every backend, with NumPy's Philox, a counter-based
generator whose stream depends only on its key.
"""

import contextlib
import dataclasses
import hashlib
import inspect
import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from vit_keras.layers import backends
from vit_keras.layers.backends import GELUS, gelu, gelu_quick, gelu_tanh
from vit_keras.layers.common import NORMALIZATIONS, Dropout, pair
from vit_keras.support.keras_internals import autocast, stored_kernel, sublayers, unlocked

# The standard deviation of a unit normal that is truncated at two standard deviations.
_TRUNCATED_STDDEV = 0.87962566103423978


def default_seed() -> int:
    """Draws a seed from Python's generator, which `keras.utils.set_random_seed` seeds."""
    return random.randint(1, 2**31 - 1)


class _PhiloxInitializer(keras.initializers.Initializer):
    """Multiplies by `scale` what `_draw` draws with a generator whose key is `seed`.

    `seed=None` draws a seed once, with `default_seed`, so each call gives the same numbers.
    """

    def __init__(self, scale: float, seed: int | None = None):
        self.scale = scale
        self.seed = default_seed() if seed is None else seed

    def __call__(self, shape, dtype=None):
        values = self._draw(np.random.Generator(np.random.Philox(key=self.seed)), shape)
        values *= np.float32(self.scale)
        return keras.ops.convert_to_tensor(values, dtype=dtype)

    def get_config(self):
        return {"scale": self.scale, "seed": self.seed}


@keras.saving.register_keras_serializable(package="vit_keras")
class Uniform(_PhiloxInitializer):
    """Draws from the uniform distribution on [-scale, scale)."""

    def _draw(self, generator, shape):
        return 2 * generator.random(shape, dtype=np.float32) - 1


@keras.saving.register_keras_serializable(package="vit_keras")
class Normal(_PhiloxInitializer):
    """Draws from the normal distribution with mean 0 and standard deviation `scale`."""

    def _draw(self, generator, shape):
        return generator.standard_normal(shape, dtype=np.float32)


@keras.saving.register_keras_serializable(package="vit_keras")
class TruncatedNormal(_PhiloxInitializer):
    """Draws from a normal distribution truncated at two standard deviations.

    `scale` is the standard deviation before truncation; numbers beyond twice it are drawn again.
    """

    def _draw(self, generator, shape):
        values = generator.standard_normal(shape, dtype=np.float32)
        while (outside := np.abs(values) > 2).any():
            values[outside] = generator.standard_normal(int(outside.sum()), dtype=np.float32)
        return values


def xavier_uniform(fan_in: int, fan_out: int, seed: int | None) -> Uniform:
    """Returns Glorot and Bengio's uniform initializer for kernels whose shape hides their fan-in.

    Args:
        fan_in: The number of inputs per output.
        fan_out: The number of outputs per input.
        seed: The seed of the numbers, or None to draw one.
    """
    return Uniform(math.sqrt(6 / (fan_in + fan_out)), seed)


def lecun_normal(fan_in: int, seed: int | None) -> TruncatedNormal:
    """Returns Flax's `lecun_normal`: a truncated normal distribution with variance 1 / fan_in.

    Args:
        fan_in: The number of inputs per output.
        seed: The seed of the numbers, or None to draw one.
    """
    return TruncatedNormal(math.sqrt(1 / fan_in) / _TRUNCATED_STDDEV, seed)


def refuse_quantized(model: keras.Model, action: str) -> None:
    """Raises ValueError if `model.quantize` was called, which leaves no kernels to copy."""
    modes = (getattr(layer, "quantization_mode", None) for layer in sublayers(model))
    mode = next(filter(None, modes), None)
    if mode is not None:
        raise ValueError(
            f"{action} needs kernels in floating point. Received: model {model.name!r}, quantized "
            f"to {mode!r}. Use the model as it was before `quantize`"
        )


class LowRankKernel(keras.layers.Layer):
    """Gives a Keras dense layer adapters for the whole kernel: W + alpha / rank · A B.

    A is `(*K, rank)` and B is `(rank, *N)` for a kernel `(*K, *N)` and a bias `(*N,)`. Keras
    instead splits off the last axis, so each attention head of query, key and value gets its own A:
    with 6 heads, that takes three times the weights of the paper's form.

    Until `enable_lora` is called, the layer behaves as in Keras. After that, `kernel` is the sum,
    and the layer's own kernel no longer trains. Files saved by Keras contain the sum.
    """

    lora_enabled: bool
    quantization_mode: str | None
    lora_rank: Any
    lora_alpha: Any

    def enable_lora(self, rank, lora_alpha=None, a_initializer=None, b_initializer="zeros"):
        """Adds adapters to a built layer.

        Args:
            rank: The number of columns of A and of rows of B.
            lora_alpha: The product is multiplied by `lora_alpha / rank`; None means `rank`.
            a_initializer: The initializer of A. None draws uniformly in ±1 / √fan_in, as in the
                published code, with a seed from `keras.utils.set_random_seed`.
            b_initializer: The initializer of B. With zeros, the layer's outputs do not change.

        Raises:
            ValueError: If `rank` is not a positive int, or the layer has adapters or is quantized.
        """
        has_kernel = self.quantization_mode is None and not self.lora_enabled
        if not has_kernel or not isinstance(rank, int) or rank < 1:
            raise ValueError(
                "`rank` must be a positive int, and a layer can take adapters only once, and only "
                f"before it is quantized. Received: rank={rank!r}, layer {self.name!r} with "
                f"lora_enabled={self.lora_enabled}, quantization_mode={self.quantization_mode!r}"
            )
        initializers = a_initializer or lora_initializer(self, None), b_initializer
        with contextlib.ExitStack() as stack:
            stack.enter_context(unlocked(self))
            for name in self.path.split("/")[:-1]:
                stack.enter_context(keras.name_scope(name))
            self.lora_kernel_a, self.lora_kernel_b = (
                self.add_weight(name=name, shape=shape, initializer=initializer, dtype="float32")
                for name, shape, initializer in zip(LORA, lora_shapes(self, rank), initializers)
            )
        stored_kernel(self).trainable = False
        alpha = self.lora_alpha if lora_alpha is None else lora_alpha
        self.lora_enabled, self.lora_rank = True, rank
        self.lora_alpha = rank if alpha is None else alpha

    def quantize(self, mode=None, type_check=True, config=None):
        """Quantizes the kernel as Keras does; raises ValueError if the layer has adapters."""
        if self.lora_enabled:
            raise ValueError(
                "Kernels with adapters cannot be quantized. Received: layer "
                f"{self.name!r} with adapters. Merge them first with `models.merge_lora(model)`"
            )
        super().quantize(mode, type_check=False, config=config)

    @property
    def kernel(self):
        if not self.lora_enabled:
            return super().kernel
        kernel = stored_kernel(self)
        a = ops.reshape(self.lora_kernel_a, (-1, self.lora_rank))
        b = ops.reshape(self.lora_kernel_b, (self.lora_rank, -1))
        product = ops.reshape(ops.matmul(a, b), kernel.shape)
        return ops.add(kernel, (self.lora_alpha / self.lora_rank) * product)

    def load_own_variables(self, store):
        """Loads the kernel and keeps A; Keras zeroes A and B, neither of which could then train."""
        first = np.array(ops.convert_to_numpy(self.lora_kernel_a)) if self.lora_enabled else None
        super().load_own_variables(store)
        if first is not None:
            self.lora_kernel_a.assign(first)


LORA = ("lora_kernel_a", "lora_kernel_b")


def lora_shapes(layer: keras.layers.Layer, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of A and B of a built dense layer."""
    shape = tuple(stored_kernel(layer).shape)
    summed = 1 if layer.bias is None else len(shape) - len(layer.bias.shape)
    return (*shape[:summed], rank), (rank, *shape[summed:])


def lora_initializer(layer: keras.layers.Layer, seed: int | None) -> Uniform:
    """The initializer of A: uniform in ±1 / √fan_in, as in the published code."""
    fan_in = math.prod(lora_shapes(layer, 1)[0])
    return Uniform(1 / math.sqrt(fan_in), seed)


__all__ = ["GELUS", "Dense", "HeadsDense", "gelu", "gelu_quick", "gelu_tanh", "linear"]
IN_TRAINING = {form: backends.lookup(form.__name__, form) for form in (gelu, gelu_tanh)}


def sizes_of(x):
    """The shape of a tensor; sizes that TensorFlow does not know are tensors."""
    return ops.shape(x) if None in x.shape[1:] else tuple(x.shape)


@backends.dispatch("linear")
def linear(x, kernel, bias, activation=None):
    """Computes activation(x kernel + bias) as one product of all rows.

    On CPUs, the gradients of one large product take two thirds as long as those of a product for
    each image.

    Args:
        x: `(B, …, *K)`.
        kernel: `(*K, *N)`.
        bias: `(*N,)`, or None for no bias; *K is then one axis.
        activation: A function of a tensor, or None.

    Returns:
        A tensor `(B, …, *N)`.
    """
    kernel = ops.convert_to_tensor(kernel)
    summed = 1 if bias is None else len(kernel.shape) - len(bias.shape)
    size = math.prod(kernel.shape[:summed])
    shape = (-1, *sizes_of(x)[1 : len(x.shape) - summed], *kernel.shape[summed:])
    if len(kernel.shape) > 2:
        kernel = ops.reshape(kernel, (size, -1))
    if bias is not None:
        bias = ops.reshape(bias, (-1,)) if len(bias.shape) > 1 else ops.convert_to_tensor(bias)
    y = ops.matmul(ops.reshape(x, (-1, size)), kernel)
    # TensorFlow fuses ops.add, its bias_add, into the product; it does not fuse +.
    y = y if bias is None else ops.add(y, bias)
    return ops.reshape(y if activation is None else activation(y), shape)


class Dense(LowRankKernel, keras.layers.Dense):
    """`keras.layers.Dense` computed with `linear`: `(…, K)` -> `(…, units)`."""

    def call(self, inputs, training=None):
        usual = self.activation
        activation = IN_TRAINING.get(usual, usual) if training else usual
        return linear(inputs, self.kernel, self.bias, activation)


class HeadsDense(LowRankKernel, keras.layers.EinsumDense):
    """`keras.layers.EinsumDense` computed with `linear`, to or from attention heads.

    The equation sets the direction: `(B, N, D)` -> `(B, N, H, d)` with a kernel `(D, H, d)`, or
    `(B, N, H, d)` -> `(B, N, D)` with a kernel `(H, d, D)`.
    """

    def call(self, inputs, training=None):
        return linear(inputs, self.kernel, self.bias)


class Configured:
    """Base class of Keras objects whose arguments are attributes of the same names.

    `get_config` returns these attributes, and `from_config` passes them to `__init__`. Keras
    objects and dataclasses among them become dictionaries.
    """

    def get_config(self):
        config = super().get_config()  # type: ignore[misc]
        values = {n: getattr(self, n) for n in _argument_names(type(self)) if n not in config}
        return {**config, **{name: _serializable(value) for name, value in values.items()}}

    @classmethod
    def from_config(cls, config):
        objects = {k: v for k, v in config.items() if isinstance(v, dict) and "class_name" in v}
        restored = {k: keras.saving.deserialize_keras_object(v) for k, v in objects.items()}
        return super().from_config({**config, **restored})  # type: ignore[misc]


def _argument_names(kind: type) -> tuple[str, ...]:
    """The names of the constructor arguments of a class and its bases below Keras' own classes."""
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


class LayerArguments:
    """Gives each layer of a model the arguments that all layers take: seed, dtype and name.

    Args:
        seed: The model's seed; None draws one.
        dtype: The dtype policy of all layers.

    Example:
        >>> layer = LayerArguments(seed=1, dtype="float32")
        >>> layer("cls")["name"], layer.unseeded("cls")  # for a layer that draws nothing
        ('cls', {'dtype': 'float32', 'name': 'cls'})
    """

    def __init__(self, seed: int | None, dtype: Any):
        self.seed, self.dtype = default_seed() if seed is None else seed, dtype

    def __call__(self, name: str) -> dict[str, Any]:
        return {"seed": fold_in(self.seed, name), **self.unseeded(name)}

    def unseeded(self, name: str) -> dict[str, Any]:
        return {"dtype": self.dtype, "name": name}


class Layer(Configured, keras.layers.Layer):
    """Base class of layers; Keras finds the shape of the output by tracing `call`."""

    def compute_output_spec(self, *args, **kwargs):
        traces = type(self).compute_output_shape is Layer.compute_output_shape
        parent: Any = super(keras.layers.Layer, self) if traces else super()
        with autocast(self.compute_dtype):
            shape = parent.compute_output_spec(*args, **kwargs).shape
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def compute_output_shape(self, *input_shapes):
        return self(*(keras.KerasTensor(shape, self.compute_dtype) for shape in input_shapes)).shape

    def fix_sequence(self, shape: tuple) -> None:
        """Makes Keras refuse first inputs of other shapes, except for the number of images."""
        self.input_spec = keras.layers.InputSpec(shape=(None, *shape[1:]))


class OnGrid:
    """Gives a layer the argument `grid`: its rows and columns of patches, or an int for both."""

    def __init__(self, grid: int | tuple[int, int], **kwargs):
        super().__init__(**kwargs)
        self.grid = pair(grid, "grid")


class SeededLayer(Layer):
    """Base class of layers whose initial weights and dropout follow from one seed.

    Each weight and each sublayer gets its own seed, derived from `seed` and its name.

    Args:
        seed: An int; None draws one from the generator that `keras.utils.set_random_seed` seeds.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.
    """

    def __init__(self, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.seed = default_seed() if seed is None else seed

    def fold_in(self, name: str) -> int:
        """Returns the seed of the weight or sublayer called `name`."""
        return fold_in(self.seed, name)

    def seeded_weight(self, name: str, shape: tuple, initializer: Callable, *numbers, **options):
        """Adds a weight whose initializer is `initializer(*numbers, seed)`, with its own seed.

        `initializer` is a function such as `Normal`; `options` are arguments of `add_weight`.
        """
        start = initializer(*numbers, self.fold_in(name))
        return self.add_weight(name=name, shape=shape, initializer=start, **options)

    def sublayer(self, name: str) -> dict:
        """Returns the arguments that every sublayer takes: its seed, its dtype and its name."""
        return LayerArguments(self.seed, self.dtype_policy)(name)

    def dense(self, fan_in: int, fan_out: int, name: str, activation=None, prefix="", **changes):
        """Returns a built dense layer with its own seed and a Xavier-uniform initial kernel."""
        options = {**self._kernel(fan_in, fan_out, name), "name": prefix + name, **changes}
        dense = Dense(fan_out, activation, **options)
        dense.build((None, fan_in))
        return dense

    def heads_dense(self, equation: str, axes: tuple, new_axes: tuple, bias_axes, name: str):
        """Like `dense`, but to or from attention heads: `(B, N, *axes)` -> `(B, N, *new_axes)`."""
        options = self._kernel(math.prod(axes), math.prod(new_axes), name)
        dense = HeadsDense(equation, (None, *new_axes), bias_axes=bias_axes, **options)
        dense.build((None, None, *axes))
        return dense

    def _kernel(self, fan_in, fan_out, name):
        kernel = xavier_uniform(fan_in, fan_out, self.fold_in(f"{name}/kernel"))
        return {"kernel_initializer": kernel, "dtype": self.dtype_policy, "name": name}

    def normalization(self, kind: str, epsilon: float, name: str):
        """Returns a normalization over the last axis, of a kind in `NORMALIZATIONS`."""
        return NORMALIZATIONS[kind](epsilon=epsilon, name=name, dtype=self.dtype_policy)

    def dropout(self, rate: float, name: str, **kwargs):
        """Returns a dropout layer with its own seed; at rate 0, the identity, to build faster."""
        if rate == 0:
            return _identity
        seed = self.fold_in(name)
        return Dropout(rate, seed=seed, name=name, dtype=self.dtype_policy, **kwargs)

    def get_config(self):
        return {**super().get_config(), "seed": self.seed}


def _identity(x, training=None):
    return x
