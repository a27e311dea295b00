"""The part of the patches that training sees in the course of a run."""

import pathlib

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, weights_by_path
from vit_keras.config import Config, ModelConfig
from vit_keras.models import VisionTransformer
from vit_keras.runs import Run
from vit_keras.training.callbacks import PatchKeepRates

SIZES = (12, 4, 8, 1, 2, 16, 3)  # 9 patches


def run(*rates, **fields):
    sizes = {"total_steps": 12, "eval_every": 2, **fields}
    model = ModelConfig(patch_keep_rate=0.5)
    return Run(pathlib.Path(), Config(batch=4, patch_keep_rates=rates, model=model, **sizes))


def test_each_rate_has_an_equal_part_of_the_run():
    callback = PatchKeepRates(run(0.5, 0.75, 1.0))
    assert [callback.rate(epoch) for epoch in range(6)] == [0.5, 0.5, 0.75, 0.75, 1.0, 1.0]
    callback = PatchKeepRates(run(0.5, 1.0, eval_every=5))  # the second part begins in an epoch
    assert [callback.rate(epoch) for epoch in range(3)] == [0.5, 0.5, 1.0]


def model():
    vit = VisionTransformer(*SIZES, patch_keep_rate=0.5, seed=2)
    vit.compile(keras.optimizers.SGD(0.1), "mse")
    return vit


@pytest.mark.nightly_on("tensorflow")
def test_training_continues_with_the_next_rate(rng):
    x = rng.normal(size=(8, 12, 12, 3)).astype("float32")
    y = rng.normal(size=(8, 3)).astype("float32")
    options = {"batch_size": 4, "shuffle": False, "verbose": 0}
    changed, by_hand = model(), model()
    watch = [PatchKeepRates(run(0.3, 1.0, total_steps=4))]
    changed.fit(x, y, epochs=2, callbacks=watch, **options)
    for rate in (0.3, 1.0):
        by_hand.get_layer("patch_dropout").keep_rate = rate
        by_hand.make_train_function(force=True)
        by_hand.fit(x, y, **options)
    expected = weights_by_path(by_hand)
    for path, value in weights_by_path(changed).items():
        assert_close(value, expected[path], rtol=2e-6, name=path)
    fixed = model()
    fixed.fit(x, y, epochs=2, **options)
    assert not np.allclose(weights_by_path(fixed)["head/kernel"], expected["head/kernel"])
