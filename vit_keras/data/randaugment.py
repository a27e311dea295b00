"""RandAugment (arXiv 1909.13719) by Keras' and KerasCV's layers, as a pure function of a generator.

Both libraries draw from generators with a state, so a resumed run would see other images. Here
each draw takes a key of its own, folded from the image's key, and only the operations that were
drawn are computed, image by image. Both compute with TensorFlow, on every backend.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from vit_keras.support import extras

MAX_MAGNITUDE = 30


def _tensorflow():
    purpose = "`augment.library` keras or keras_cv"
    return extras.require("tensorflow", extra="tensorflow", purpose=purpose)


class Keys:
    """Replaces TensorFlow's `Generator` by keys without a state.

    The n-th draw of a traced function folds n into `key`, two integers.
    """

    def __init__(self, key):
        self.tf, self.key, self.count = _tensorflow(), key, 0

    def next(self, ordered=True):
        self.count += 1
        return self.tf.random.experimental.stateless_fold_in(self.key, self.count)

    def uniform(self, shape, minval=0, maxval=None, dtype="float32", name=None):
        maxval = 1 if maxval is None and self.tf.as_dtype(dtype).is_floating else maxval
        return self.tf.random.stateless_uniform(shape, self.next(), minval, maxval, dtype, name)

    def normal(self, shape, mean=0.0, stddev=1.0, dtype="float32", name=None):
        return self.tf.random.stateless_normal(shape, self.next(), mean, stddev, dtype, name)


class KerasKeys(Keys, keras.random.SeedGenerator):
    """Replaces Keras' generator, whose `__init__` would create a variable."""


class Equalization(keras.layers.Equalization):
    """Keras' layer with another histogram: Keras' needs 11,000 operations, 53 ms, on JAX."""

    def _custom_histogram_fixed_width(self, values, value_range, nbins):
        (low, high), tf = value_range, _tensorflow()
        bins = tf.cast((values - low) * (nbins - 1) / (high - low), tf.int32)
        bins = tf.reshape(tf.clip_by_value(bins, 0, nbins - 1), (-1,))
        return tf.math.bincount(bins, minlength=nbins, maxlength=nbins)


def randaugment(
    library: str, layers: int, magnitude: float
) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Makes a function that augments one image, which several threads may call.

    Args:
        library: "keras" or "keras_cv".
        layers: The number of operations per image.
        magnitude: The strength, 0 to 30, as a share of the library's strongest operation.

    Returns:
        `(image, rng) -> image`: the images are `(H, W, 3)` float32 in [0, 255].

    Raises:
        ImportError: If TensorFlow or the library is not installed.
    """
    tf = _tensorflow()
    apply = tf.function(LIBRARIES[library](layers, magnitude / MAX_MAGNITUDE), autograph=False)

    def change(image, rng):
        with tf.device("CPU"):
            return apply(image, rng.integers(2**31, size=2)).numpy()

    return change


def _keras(layers, factor):
    tf = _tensorflow()
    layer = keras.layers.RandAugment((0, 255), layers, factor, dtype="float32")
    layer.equalization = Equalization((0, 255), dtype="float32")
    operations = [getattr(layer, name) for name in layer._AUGMENT_LAYERS]

    def one(operation, images, key):
        change = operation.get_random_transformation(images, training=True, seed=KerasKeys(key))
        return tf.ensure_shape(operation.transform_images(images, change), images.shape)

    def apply(image, image_key):
        images, keys = image[None], Keys(image_key)
        with on_tensorflow(layer, *operations):
            for _ in range(layers):
                choice = keys.uniform((), 0, len(operations), "int32")
                key = keys.next()
                branches = [functools.partial(one, op, images, key) for op in operations]
                images = tf.switch_case(choice, branches)
        return tf.clip_by_value(images[0], 0.0, 255.0)

    return apply


def _keras_cv(layers, factor):
    tf = _tensorflow()
    core, cv_layers = (
        extras.require(name, extra="keras-cv", purpose="`augment.library: keras_cv`")
        for name in ("keras_cv.core", "keras_cv.layers")
    )
    layer = cv_layers.RandAugment((0, 255), layers, factor, dtype="float32")

    FactorSampler: Any = core.FactorSampler

    class Normal(FactorSampler):
        def __init__(self, old, keys):
            self.old, self.keys = old, keys

        def __call__(self, shape=(), dtype="float32"):
            drawn = self.keys.normal(shape, self.old.mean, self.old.stddev, dtype)
            return tf.clip_by_value(drawn, self.old.min_value, self.old.max_value)

    class Uniform(Normal):
        def __call__(self, shape=(), dtype="float32"):
            return self.keys.uniform(shape, self.old.lower, self.old.upper, dtype)

    keyed = {core.NormalFactorSampler: Normal, core.UniformFactorSampler: Uniform}

    places = [
        (part, name, value)
        for part in (layer, layer._random_choice, *layer.layers)
        for name, value in vars(part).items()
        if type(value) in keyed
    ]

    def apply(image, key):
        keys = Keys(key)
        for part in (layer, layer._random_choice, *layer.layers):
            part._random_generator = keys
        for part, name, old in places:
            setattr(part, name, keyed[type(old)](old, keys))
        changed = tf.function(lambda image: layer(image))(image)  # KerasCV needs AutoGraph
        return tf.ensure_shape(changed, image.shape)

    return apply


LIBRARIES = {"keras": _keras, "keras_cv": _keras_cv}


@contextlib.contextmanager
def on_tensorflow(*layers):
    """Lets Keras' image layers compute with TensorFlow on every backend."""
    for layer in layers:
        layer.backend.set_backend("tensorflow")
    try:
        yield
    finally:
        for layer in layers:
            layer.backend.reset()
