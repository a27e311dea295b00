"""Grain's data sets feed `fit` and `predict`."""

import grain
import keras
import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.helpers import assert_close, weights_by_path
from vit_keras.applications import preprocess_input
from vit_keras.models import VisionTransformer

pytestmark = pytest.mark.nightly_on("jax", "tensorflow")


def model():
    made = VisionTransformer(8, 4, 8, 1, 2, 16, 10, seed=1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(0.1), loss)
    return made


def prepare(row):
    image, label = row
    pixels = np.repeat(image[..., None] * (255 / 16), 3, axis=-1).astype("float32")
    return preprocess_input(pixels), label


def test_training_on_grains_batches_is_training_on_these_arrays():
    digits = load_digits()
    images, labels = digits.images[:64], digits.target[:64]
    source = grain.MapDataset.source(list(zip(images, labels))).seed(3).shuffle().map(prepare)
    batches = list(source.batch(16))
    ours, expected = model(), model()
    ours.fit(source.to_iter_dataset().batch(16), epochs=2, verbose=0)
    for _ in range(2):
        for x, y in batches:
            expected.train_on_batch(x, y)
    for path, value in weights_by_path(expected).items():
        assert_close(weights_by_path(ours)[path], value, rtol=2e-6)
    inputs = source.map(lambda row: row[:1]).batch(16).to_iter_dataset()
    assert_close(
        ours.predict(inputs, verbose=0),
        ours.predict(np.concatenate([x for x, _ in batches]), batch_size=16, verbose=0),
    )
