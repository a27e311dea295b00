"""Training on a part of the patches, against NumPy."""

import keras
import numpy as np
import pytest

from tests.helpers import to_numpy
from vit_keras.layers import PatchDropout


def kept_patches(x, seed, keep_rate, class_tokens):
    """The layer in NumPy, from the numbers that Keras draws by `seed`."""
    images, tokens, _ = x.shape
    patches = tokens - class_tokens
    numbers = to_numpy(keras.random.uniform((images, patches), dtype="float32", seed=seed))
    count = max(1, round(patches * keep_rate))
    places = np.sort(np.argsort(-numbers, axis=1)[:, :count], axis=1) + class_tokens
    return np.stack([np.concatenate([i[:class_tokens], i[p]]) for i, p in zip(x, places)])


@pytest.mark.parametrize(("keep_rate", "class_tokens"), [(0.01, 1), (0.7, 0)])
def test_training_keeps_the_patches_that_the_seed_says(rng, keep_rate, class_tokens):
    x = rng.normal(size=(5, 10, 3)).astype("float32")
    layer = PatchDropout(keep_rate, class_tokens, seed=3)
    generator = keras.random.SeedGenerator(layer.fold_in("patches"))
    for _ in range(2):  # every step draws other patches
        expected = kept_patches(x, generator, keep_rate, class_tokens)
        np.testing.assert_array_equal(to_numpy(layer(x, training=True)), expected)
    np.testing.assert_array_equal(to_numpy(layer(x)), x)
    again = PatchDropout.from_config(layer.get_config())
    first = kept_patches(x, layer.fold_in("patches"), keep_rate, class_tokens)
    np.testing.assert_array_equal(to_numpy(again(x, training=True)), first)
