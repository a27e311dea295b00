"""Runs with low-rank adapters: what they write, and that they resume to the same bits."""

import dataclasses

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, randomize, weights_by_path
from tests.training.small import assert_same_state, by_path, killed_after_a_save, state
from vit_keras import experiments, runs, weights
from vit_keras.config import Config, LoraConfig, ModelConfig, OptimizerConfig, PretextConfig
from vit_keras.models import VisionTransformer, merge_lora

STEPS = 4


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A model of three classes, with random weights; a run replaces its head."""
    model = VisionTransformer(16, 8, 8, 1, 2, 12, num_classes=3, channels=1, gelu="tanh")
    file = tmp_path_factory.mktemp("base") / "base.keras"
    weights.save_model(randomize(model, np.random.default_rng(0), scale=0.2), file)
    return file


def config_of(base, folder, **fields):
    return Config(
        workdir=str(folder),
        **{"batch": 32, "total_steps": STEPS, "eval_every": STEPS, "checkpoint_every": 2, **fields},
        kernels="default",
        model=ModelConfig(weights=str(base), dropout_rate=0.1),
        lora=LoraConfig(rank=2, alpha=4.0, layers=("query", "value", "Dense_0")),
        optimizer=OptimizerConfig(learning_rate=0.02, weight_decay=0.1, ema_decay=0.9),
    )


@pytest.mark.nightly_on("tensorflow", "jax")
def test_a_run_writes_its_adapters_and_resumes_to_the_same_bits(base, tmp_path):
    report = experiments.train_run(config_of(base, tmp_path / "straight"))
    other = config_of(base, tmp_path / "killed")
    with killed_after_a_save():
        experiments.train_run(other)
    assert experiments.train_run(other) == report
    assert_same_state(*(state(tmp_path / name, STEPS) for name in ("straight", "killed")))

    run = runs.find_run(tmp_path / "killed")
    before, after = weights_by_path(vit_keras.open(base)), by_path(run.folder, STEPS)
    for name, value in before.items():  # the whole training changed nothing of the base
        if not name.startswith("head"):
            np.testing.assert_array_equal(after[name], value, err_msg=name)
    adapted = vit_keras.open(base, adapters=run.adapters_file)
    images = np.random.default_rng(1).normal(size=(4, 16, 16, 1)).astype("float32")
    merged = vit_keras.open(run.model_file)
    expected = adapted.predict(images, verbose=0)
    assert np.ptp(expected) > 0.1 and expected.shape == (4, 10)
    assert_close(merged.predict(images, verbose=0), expected)
    for name, value in weights_by_path(merge_lora(adapted)).items():
        assert_close(weights_by_path(merged)[name], value, rtol=1e-6, name=name)


@pytest.mark.once
def test_fields_that_do_not_fit_are_refused(base, tmp_path):
    config = config_of(base, tmp_path / "run")
    without = dataclasses.replace(config, model=ModelConfig(image_size=16, channels=1))
    with pytest.raises(ValueError, match="`lora.rank` needs `model.weights`.*lora.rank=2 without"):
        experiments.train_run(without)
    with pytest.raises(ValueError, match="`lora.rank` must be null with `pretext.objective` mae"):
        dataclasses.replace(without, pretext=PretextConfig("mae"))
    with pytest.raises(ValueError, match="`lora.rank` must be null and .*with `cache_features`"):
        dataclasses.replace(config, cache_features=True)
    for fields, message in (
        ({"rank": -1}, "`lora.rank` must be at least 1, or null for no adapters. Received: -1"),
        ({"alpha": 0.0}, "`lora.alpha` must be above 0"),
        ({"layers": ()}, "`lora.layers` must be names of dense layers"),
    ):
        with pytest.raises(ValueError, match=message):
            LoraConfig(**fields)
    assert not LoraConfig().is_active and not LoraConfig(rank=0).is_active
