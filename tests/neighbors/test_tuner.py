"""KerasTuner searches over our models."""

import keras
import keras_tuner
import numpy as np
import pytest
from sklearn.datasets import load_digits

from vit_keras.models import VisionTransformer

pytestmark = pytest.mark.nightly


def build(choices):
    """A model of the width, the classifier and the rate that the tuner chooses."""
    width = choices.Choice("hidden_size", [8, 16])
    classifier = choices.Choice("classifier", ["token", "map"])
    model = VisionTransformer(8, 4, width, 1, 2, 16, 10, classifier=classifier)
    rate = choices.Float("learning_rate", 1e-3, 1e-2, sampling="log")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    return model


@pytest.mark.parametrize("kind", ["RandomSearch", "GridSearch", "BayesianOptimization"])
def test_the_best_model_is_the_one_that_it_measured(kind, tmp_path):
    digits = load_digits()
    images = np.repeat(digits.images[:192, ..., None] / 8 - 1, 3, axis=-1).astype("float32")
    train, held_out = (images[:128], digits.target[:128]), (images[128:], digits.target[128:192])
    tuner = getattr(keras_tuner, kind)(
        build, "val_accuracy", max_trials=3, seed=0, directory=tmp_path, overwrite=True
    )
    tuner.search(*train, epochs=1, validation_data=held_out, verbose=0)
    trials = tuner.oracle.get_best_trials(3)
    assert len({tuple(sorted(trial.hyperparameters.values.items())) for trial in trials}) == 3
    scores = [trial.score for trial in trials]
    assert scores == sorted(scores, reverse=True)
    best = tuner.get_best_models(1)[0]
    right = best.predict(held_out[0], verbose=0).argmax(axis=1) == held_out[1]
    assert right.mean() == pytest.approx(trials[0].metrics.get_best_value("val_accuracy"))
    chosen = trials[0].hyperparameters.values
    assert best.get_layer("encoderblock_0").output.shape[-1] == chosen["hidden_size"]
