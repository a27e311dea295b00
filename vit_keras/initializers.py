"""Initialisers that draw the same numbers on every Keras backend.

Keras draws initial weights with the backend's own generator, so that one seed gives three models.
These draw with NumPy's Philox, a counter-based generator whose stream depends on its key alone.
"""

import hashlib
import math
import random
import threading

import keras
import numpy as np

# Standard deviation of a unit normal truncated at two standard deviations.
_TRUNCATED_STDDEV = 0.87962566103423978


def default_seed() -> int:
    """A seed from Python's generator, the one that `keras.utils.set_random_seed` sets."""
    return random.randint(1, 2**31 - 1)


def fold_in(seed: int, name: str) -> int:
    """A new seed in [0, 2³¹) for the part called `name`; nearby seeds give unrelated ones."""
    digest = hashlib.blake2s(f"{seed}/{name}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") >> 1


class _PhiloxInitializer(keras.initializers.Initializer):
    """Base: `scale` times what `_fill` draws from a generator keyed by `seed`."""

    def __init__(self, scale: float, seed: int | None = None):
        self.scale = scale
        self.seed = default_seed() if seed is None else seed

    def __call__(self, shape, dtype=None):
        generator = np.random.Generator(np.random.Philox(key=self.seed))
        values = _scratch(math.prod(shape))
        self._fill(generator, values)
        values *= np.float32(self.scale)
        # NumPy's copy: JAX would copy later, when the buffer may hold another weight's numbers.
        return keras.ops.convert_to_tensor(values.reshape(shape).copy(), dtype=dtype)

    def get_config(self):
        return {"scale": self.scale, "seed": self.seed}


@keras.saving.register_keras_serializable(package="vit_keras")
class Uniform(_PhiloxInitializer):
    """Uniform on [-scale, scale)."""

    def _fill(self, generator, values):
        generator.random(out=values, dtype=np.float32)
        values *= np.float32(2)
        values -= np.float32(1)


@keras.saving.register_keras_serializable(package="vit_keras")
class Normal(_PhiloxInitializer):
    """Normal with mean 0 and standard deviation `scale`."""

    def _fill(self, generator, values):
        generator.standard_normal(out=values, dtype=np.float32)


@keras.saving.register_keras_serializable(package="vit_keras")
class TruncatedNormal(_PhiloxInitializer):
    """Normal of standard deviation `scale` before what lies beyond two of them is redrawn."""

    def _fill(self, generator, values):
        generator.standard_normal(out=values, dtype=np.float32)
        while (outside := np.abs(values) > 2).any():
            values[outside] = generator.standard_normal(int(outside.sum()), dtype=np.float32)


_buffers = threading.local()


def _scratch(size: int) -> np.ndarray:
    """A float32 buffer of `size` to be overwritten: touching new memory costs more than drawing."""
    if getattr(_buffers, "values", np.empty(0)).size < size:
        _buffers.values = np.empty(size, np.float32)
    return _buffers.values[:size]


def xavier_uniform(fan_in: int, fan_out: int, seed: int | None) -> Uniform:
    """Glorot and Bengio's uniform initialiser, for kernels whose shape hides their fans."""
    return Uniform(math.sqrt(6 / (fan_in + fan_out)), seed)


def lecun_normal(fan_in: int, seed: int | None) -> TruncatedNormal:
    """Flax's `lecun_normal`: truncated normal of variance 1 / fan_in."""
    return TruncatedNormal(math.sqrt(1 / fan_in) / _TRUNCATED_STDDEV, seed)
