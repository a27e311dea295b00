"""Updates through `model.fit` of a model that is compiled like a run's."""

import dataclasses

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, to_numpy, weights_by_path
from tests.update_reference import small_model, values
from vit_keras.config import Config, OptimizerConfig
from vit_keras.training.loop import compile_model

RULES = OptimizerConfig(
    learning_rate=0.01, weight_decay=0.1, warmup_steps=2, ema_decay=0.9, freeze=("embedding",)
)
CONFIG = Config(batch=8, total_steps=8, optimizer=RULES)
TORCH = keras.backend.backend() == "torch"


def fitted(config, calls=(6,)):
    """Returns a model after calls of `fit`, each of which makes the given number of updates."""
    rng = np.random.default_rng(7)
    model = small_model(rng)
    images = rng.uniform(-1, 1, (48, 8, 8, 1)).astype("float32")
    targets = np.eye(5, dtype="float32")[rng.integers(0, 5, 48)]
    compile_model(model, config)
    begin = 0
    for updates in calls:
        part = slice(8 * begin, 8 * (begin + updates))
        size = config.batch // config.optimizer.accumulation_steps
        model.fit(images[part], targets[part], batch_size=size, shuffle=False, verbose=0)
        begin += updates
    return model


@pytest.fixture(scope="module")
def straight():
    return fitted(CONFIG)


def state(model):
    """Weights and averages by path, without keys' biases, whose gradient is 0 but for rounding."""
    averages = values(model.optimizer.averages)
    paths = [f"average of {v.path}" for v in model.trainable_variables]
    state = {**weights_by_path(model), **dict(zip(paths, averages))}
    return {path: value for path, value in state.items() if not path.endswith("/key/bias")}


def assert_same_state(model, other, rtol):
    expected = state(other)
    for path, value in state(model).items():
        assert_close(value, expected[path], rtol, path)


def test_two_calls_of_fit_train_as_one(straight):
    """`fit` also ends with the weights, not with their average."""
    twice = fitted(CONFIG, calls=(3, 3))
    assert_same_state(straight, twice, 0.0)
    kernel = "head/kernel"
    assert np.abs(state(twice)[f"average of {kernel}"] - state(twice)[kernel]).max() > 1e-3


def test_frozen_layers_stay(straight):
    before, after = weights_by_path(fitted(CONFIG, calls=())), weights_by_path(straight)
    still = [path for path in before if np.array_equal(before[path], after[path])]
    assert still == ["embedding/kernel", "embedding/bias"]


def test_a_batch_in_parts_trains_as_a_whole_batch(straight):
    """Two updates in one execution, which torch does not have, are two updates as well."""
    executed = 1 if TORCH else 2
    rules = dataclasses.replace(RULES, accumulation_steps=4)
    model = fitted(dataclasses.replace(CONFIG, steps_per_execution=executed, optimizer=rules))
    assert model.steps_per_execution == (1 if TORCH else 8)  # parts
    assert int(to_numpy(model.optimizer.iterations)) == 6
    assert_same_state(straight, model, 5e-6)


@pytest.mark.on("torch")
def test_steps_in_one_execution_are_refused_on_torch():
    config = dataclasses.replace(CONFIG, steps_per_execution=2)
    with pytest.raises(ValueError, match="`steps_per_execution` must be 1 on the torch backend"):
        fitted(config, calls=())
