"""Initializers that draw the same numbers on every Keras backend.

Keras draws initial weights with the backend's generator, so one seed gives three different models.
These initializers draw with NumPy's Philox, a counter-based generator whose stream depends only on
its key.
"""

import math
import random
import threading

import keras
import numpy as np

# The standard deviation of a unit normal that is truncated at two standard deviations.
_TRUNCATED_STDDEV = 0.87962566103423978


def default_seed() -> int:
    """Draws a seed from Python's generator, which `keras.utils.set_random_seed` sets."""
    return random.randint(1, 2**31 - 1)


class _PhiloxInitializer(keras.initializers.Initializer):
    """Draws `scale` times the numbers of `_fill`, with a generator whose key is `seed`.

    `seed=None` draws a seed with `default_seed` once per initializer, so each call gives the same
    numbers.
    """

    def __init__(self, scale: float, seed: int | None = None):
        self.scale = scale
        self.seed = default_seed() if seed is None else seed

    def __call__(self, shape, dtype=None):
        generator = np.random.Generator(np.random.Philox(key=self.seed))
        values = _scratch(math.prod(shape))
        self._fill(generator, values)
        values *= np.float32(self.scale)
        # A copy by NumPy: JAX copies later, when the buffer may hold another weight's numbers.
        return keras.ops.convert_to_tensor(values.reshape(shape).copy(), dtype=dtype)

    def get_config(self):
        return {"scale": self.scale, "seed": self.seed}


@keras.saving.register_keras_serializable(package="vit_keras")
class Uniform(_PhiloxInitializer):
    """Draws from the uniform distribution on [-scale, scale)."""

    def _fill(self, generator, values):
        generator.random(out=values, dtype=np.float32)
        values *= np.float32(2)
        values -= np.float32(1)


@keras.saving.register_keras_serializable(package="vit_keras")
class Normal(_PhiloxInitializer):
    """Draws from the normal distribution with mean 0 and standard deviation `scale`."""

    def _fill(self, generator, values):
        generator.standard_normal(out=values, dtype=np.float32)


@keras.saving.register_keras_serializable(package="vit_keras")
class TruncatedNormal(_PhiloxInitializer):
    """Draws from a normal distribution truncated at two standard deviations.

    `scale` is the standard deviation before truncation. Numbers beyond twice the scale are drawn
    again.
    """

    def _fill(self, generator, values):
        generator.standard_normal(out=values, dtype=np.float32)
        while (outside := np.abs(values) > 2).any():
            values[outside] = generator.standard_normal(int(outside.sum()), dtype=np.float32)


_buffers = threading.local()


def _scratch(size: int) -> np.ndarray:
    """Returns a float32 buffer to overwrite.

    Each thread reuses its own buffer, since touching new memory takes longer than drawing the
    numbers.
    """
    if getattr(_buffers, "values", np.empty(0)).size < size:
        _buffers.values = np.empty(size, np.float32)
    return _buffers.values[:size]


def xavier_uniform(fan_in: int, fan_out: int, seed: int | None) -> Uniform:
    """Returns Glorot and Bengio's uniform initializer, for kernels whose shape hides their fans.

    Args:
        fan_in: The number of inputs per output.
        fan_out: The number of outputs per input.
        seed: The seed of the numbers, or None to draw one.
    """
    return Uniform(math.sqrt(6 / (fan_in + fan_out)), seed)


def lecun_normal(fan_in: int, seed: int | None) -> TruncatedNormal:
    """Returns Flax's `lecun_normal`: a truncated normal distribution of variance 1 / fan_in.

    Args:
        fan_in: The number of inputs per output.
        seed: The seed of the numbers, or None to draw one.
    """
    return TruncatedNormal(math.sqrt(1 / fan_in) / _TRUNCATED_STDDEV, seed)
