"""Grain's data sets feed `fit` and `predict`, and KerasTuner searches over our models."""

import grain
import keras
import keras_tuner
import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.helpers import assert_close, weights_by_path
from vit_keras.applications import preprocess_input
from vit_keras.models import VisionTransformer


def compiled(optimizer, hidden_size=8, classifier="token"):
    model = VisionTransformer(8, 4, hidden_size, 1, 2, 16, 10, classifier=classifier, seed=1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def prepare(row):
    image, label = row
    pixels = np.repeat(image[..., None] * (255 / 16), 3, axis=-1).astype("float32")
    return preprocess_input(pixels), label


@pytest.mark.nightly_on("jax", "tensorflow")
def test_training_on_grains_batches_is_training_on_these_arrays():
    digits = load_digits()
    images, labels = digits.images[:64], digits.target[:64]
    source = grain.MapDataset.source(list(zip(images, labels))).seed(3).shuffle().map(prepare)
    batches = list(source.batch(16))
    ours, expected = (compiled(keras.optimizers.SGD(0.1)) for _ in range(2))
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


def build(choices):
    """A model of the width, the classifier and the rate that the tuner chooses."""
    width = choices.Choice("hidden_size", [8, 16])
    rate = choices.Float("learning_rate", 1e-3, 1e-2, sampling="log")
    classifier = choices.Choice("classifier", ["token", "map"])
    return compiled(keras.optimizers.Adam(rate), width, classifier)


@pytest.mark.nightly
def test_the_best_model_is_the_one_that_it_measured(tmp_path):
    digits = load_digits()
    images = np.repeat(digits.images[:192, ..., None] / 8 - 1, 3, axis=-1).astype("float32")
    train, held_out = (images[:128], digits.target[:128]), (images[128:], digits.target[128:192])
    tuner = keras_tuner.RandomSearch(
        build, "val_accuracy", max_trials=3, seed=0, directory=tmp_path, overwrite=True
    )
    tuner.search(*train, epochs=1, validation_data=held_out, verbose=0)
    (trial,), (best,) = tuner.oracle.get_best_trials(1), tuner.get_best_models(1)
    right = best.predict(held_out[0], verbose=0).argmax(axis=1) == held_out[1]
    assert right.mean() == pytest.approx(trial.metrics.get_best_value("val_accuracy"))
    width = best.get_layer("encoderblock_0").output.shape[-1]
    assert width == trial.hyperparameters.values["hidden_size"]
