"""Runs without labels are resumed, measured and fine-tuned like other runs."""

import dataclasses
import json

import numpy as np
import pytest

import vit_keras
from tests.helpers import to_numpy
from tests.training.small import assert_same_run, by_path, killed_after_a_save
from vit_keras import evaluation, experiments
from vit_keras.config import (
    AugmentConfig,
    Config,
    DinoConfig,
    ModelConfig,
    OptimizerConfig,
    PretextConfig,
    read_config,
)
from vit_keras.experiments import training_run
from vit_keras.training import checkpoints

SIZES = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "mlp_dim": 16, "patch_size": 8}


def small(folder, objective="masked_patch", **fields):
    """Six updates of a model of one block, evaluated twice."""
    config = read_config("masked_patch_digits")
    decoder = {"decoder_hidden_size": 8, "decoder_num_layers": 1, "decoder_num_heads": 2}
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, **SIZES, dropout_rate=0.1),
        pretext=PretextConfig(objective, **decoder),
        batch=16,
        workdir=str(folder),
        **{"total_steps": 6, "eval_every": 3, "checkpoint_every": 2, **fields},
    )


@pytest.mark.nightly_on("tensorflow")
@pytest.mark.slow
def test_a_stopped_run_ends_as_if_it_had_not_been(tmp_path, capsys):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    report = experiments.train_run(small(straight))
    printed = capsys.readouterr().out

    with killed_after_a_save():
        experiments.train_run(small(stopped))
    assert checkpoints.newest(stopped / "checkpoints").name == "step_000000002"  # in an epoch
    again = experiments.train_run(small(stopped))
    rows = assert_same_run(straight, stopped, 6)
    assert again == report
    assert json.loads((straight / "report.json").read_text()) == report
    for shots in (0, 1, 2):
        before, after = (report[key][shots] for key in ("fewshot_before", "fewshot"))
        assert rows[-1][f"fewshot_{after['shots']}"] == after["mean"]
        assert before["accuracies"] != after["accuracies"]
        line = f"{after['shots']}-shot accuracy {100 * before['mean']:.2f} ± "
        assert line in printed and f"{100 * after['mean']:.2f} ± " in printed


@pytest.mark.on("torch")
def test_a_run_leaves_the_encoder_that_it_trained(tmp_path):
    run = tmp_path / "run"
    experiments.train_run(small(run, "mae", fewshot_every=0, total_steps=3))
    trained, encoder = by_path(run, 3), vit_keras.open(run / "model.keras")
    assert encoder.input_shape == (None, 16, 16, 1) and encoder.output_shape == (None, 10)
    heads = [v.path for v in encoder.weights if v.path not in trained]
    assert heads == ["head/kernel", "head/bias"]
    for variable in encoder.weights:
        expected = trained.get(variable.path, np.zeros(variable.shape))
        np.testing.assert_array_equal(to_numpy(variable), expected)
    assert json.loads((run / "report.json").read_text()) == {}
    start = vit_keras.open(run / "model.keras")
    config = dataclasses.replace(
        small(tmp_path / "tuned", "none", total_steps=1, eval_every=1, fewshot_every=0),
        augment=AugmentConfig(),
    )
    model = dataclasses.replace(config.model, weights=str(run))
    fresh = training_run.initial_model(
        dataclasses.replace(config, model=model), [str(i) for i in range(10)]
    )
    for one, two in zip(start.weights, fresh.weights):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(two))
    assert evaluation.feature_model(fresh).output_shape == (None, 16)


@pytest.mark.nightly_on("jax", "tensorflow")
@pytest.mark.slow
def test_a_stopped_self_distillation_ends_as_if_it_had_not_been(tmp_path):
    """The teacher and the center are restored to the same bits, and the teacher is saved."""
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    sizes = {"local_size": 8, "prototypes": 8, "head_hidden_size": 8, "bottleneck_size": 4}

    def config(folder):
        made = small(folder, "masked_patch", total_steps=4, fewshot_every=0)
        pretext = PretextConfig("dino", dino=DinoConfig(2, **sizes))
        optimizer = dataclasses.replace(made.optimizer, accumulation_steps=2)
        changes = {"pretext": pretext, "optimizer": optimizer, "augment": AugmentConfig()}
        return dataclasses.replace(made, **changes)

    experiments.train_run(config(straight))
    with killed_after_a_save():
        experiments.train_run(config(stopped))
    experiments.train_run(config(stopped))
    rows = assert_same_run(straight, stopped, 4)
    assert 0 < rows[-1]["val_teacher_entropy"] <= np.log(8) + 1e-5
    assert int(by_path(straight, 4)["self_distillation/calls"]) == 8  # two parts each
    models = [vit_keras.open(folder / "model.keras") for folder in (straight, stopped)]
    untrained = training_run.initial_model(config(straight), [str(i) for i in range(10)])
    for one, two in zip(*(model.weights for model in models)):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(two))
    pairs = zip(models[0].weights, untrained.weights)
    moved = [np.abs(to_numpy(one) - to_numpy(two)).max() for one, two in pairs]
    assert 0 < max(moved) < 0.01  # an average of a few updates


VIT = ModelConfig(None, 16, 1, 4, 16, 1, 2, 16, classifier="gap")
BAD = [
    ({"corrupt": 0.0}, {}, r"`pretext.corrupt` must be above 0 and below 1.*Received: 0.0"),
    ({"bits": 6}, {}, r"`pretext.bits` must be from 1 to 5. Received: 6"),
    ({"decoder_num_layers": 0}, {}, r"`pretext.decoder_num_layers` must be at least 1"),
    ({"decoder_hidden_size": 30}, {}, "multiple of 4 and of the second. Received: 30 and 16"),
    (
        {},
        {"loss": "sigmoid"},
        r"`loss` must be null with .*, which trains no classifier. Received: loss=sigmoid",
    ),
    ({}, {"label_smoothing": 0.1}, r"`label_smoothing` must be "),
    ({}, {"sweep": True}, r"`sweep` must be "),
    ({}, {"patience": 3}, r"`patience` must be "),
    ({}, {"watch_every": 1}, r"`watch_every` must be "),
    ({}, {"augment": AugmentConfig(mixup_alpha=0.2)}, r"`augment.mixup_alpha` must be "),
    ({}, {"model": ModelConfig("R50+B/16")}, r"hybrids and ResNets have none. Received: .*R50\+B"),
    ({}, {"model": {"classifier": "map"}}, r"`model.classifier` must be token or gap"),
    ({}, {"model": {"representation_size": 4}}, r"`model.representation_size` must be "),
    ({}, {"model": {"image_size": 4}}, r"at least two patches. Received: .*patches of 4x4"),
    (
        {"target": "colors_4x4"},
        {"model": {"patch_size": (8, 2)}},
        r"needs patches with sides in multiples of 4. Received: 8x2",
    ),
    *(
        ({"objective": "dino", "dino": DinoConfig(local_size=8)}, fields, message)
        for fields, message in (
            ({"model": {"position_embedding": "rope2d"}}, r"one of learned, .*Received: rope2d"),
            ({"model": {"patch_size": (8, 16)}}, r"local_size` must be a multiple .*8 with .*8x16"),
            ({"augment": AugmentConfig(rotation_degrees=5)}, r"`augment.rotation_degrees` must be"),
            ({"optimizer": OptimizerConfig(ema_decay=0.9)}, r"`optimizer.ema_decay` must be null"),
            ({"optimizer": OptimizerConfig(layer_decay=0.9)}, r"`optimizer.layer_decay` must be"),
            ({"optimizer": OptimizerConfig(freeze=("cls",))}, r"`optimizer.freeze` must be"),
            ({"patch_keep_rates": (0.5, 1.0)}, r"`patch_keep_rates` must be .*views and averages"),
        )
    ),
    ({"objective": "dino", "corrupt": 0.5}, {}, r"`pretext.corrupt` must be null with .* dino"),
]


@pytest.mark.once
@pytest.mark.parametrize(("pretext", "fields", "message"), BAD)
def test_what_does_not_go_together_is_named(pretext, fields, message):
    model = fields.get("model", VIT)
    if isinstance(model, dict):
        model = dataclasses.replace(VIT, **model)
    with pytest.raises(ValueError, match=message):
        made = PretextConfig(**{"objective": "masked_patch", **pretext})
        Config(**{**fields, "model": model}, pretext=made)
