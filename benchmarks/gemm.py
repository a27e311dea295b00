"""One large matrix product in each framework: a bound on the speed that a model can reach."""

import functools

import numpy as np

SIZE = {"fp32": 4096, "bf16": 4096}
TYPES = {"fp32": "float32", "bf16": "bfloat16"}


def flops(precision: str) -> float:
    """The floating-point operations of one product."""
    return 2.0 * SIZE[precision] ** 3


def _matrix(precision):
    return np.random.default_rng(0).normal(size=(SIZE[precision],) * 2).astype("float32")


def _torch(precision):
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.from_numpy(_matrix(precision)).to(device, getattr(torch, TYPES[precision]))
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    return lambda: (a @ a, wait())


def _jax(precision):
    import jax

    a = jax.numpy.asarray(_matrix(precision), TYPES[precision])
    product = jax.jit(lambda a: a @ a)
    return lambda: product(a).block_until_ready()


def _tensorflow(precision):
    import tensorflow as tf

    a = tf.cast(_matrix(precision), TYPES[precision])
    product = tf.function(lambda a: tf.reduce_max(a @ a), jit_compile=True)
    return lambda: product(a).numpy()


PRODUCTS = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}


def contender(backend: str):
    """Returns a contender's `make`, whose step is one product."""
    return functools.partial(_make, backend)


def _make(backend, case):
    product = PRODUCTS[backend](case.precision)

    def step(count):
        for _ in range(count):
            product()

    return step, 0
