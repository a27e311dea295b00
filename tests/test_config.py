"""A run's configuration from YAML and the command line."""

import dataclasses
import pathlib

import pytest

from tests.helpers import ROOT, shapes_only
from vit_keras.config import (
    Config,
    UsageError,
    dump_config,
    explain_fields,
    find_recipe,
    parse_config,
    read_config,
)
from vit_keras.models import from_model_config

pytestmark = pytest.mark.once


def parse(*arguments):
    return parse_config(list(arguments))


def refused(*arguments):
    with pytest.raises((UsageError, FileNotFoundError)) as error:
        parse(*arguments)
    return " ".join(str(error.value).split())


def test_arguments_stand_over_the_file_and_the_file_over_defaults(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("seed: 3\ntotal_steps: 7\nmodel: {variant: Ti/16, image_size: [32, 48]}\n")
    config = parse("--config", str(file), "--seed", "4", "--optimizer.learning_rate", "1e-2")
    assert (config.seed, config.total_steps, config.batch) == (4, 7, Config().batch)
    assert config.optimizer.learning_rate == 0.01
    assert config.model.arguments()["image_size"] == (32, 48)
    with shapes_only():
        model = from_model_config(config.model, num_classes=3)
    assert model.get_layer("embedding").hidden_size == 192 and model.output_shape == (None, 3)


def test_what_is_written_is_read_again(tmp_path):
    config = parse("--seed", "5", "--model.patch_size", "[4, 2]", "--workdir", "runs/x")
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert read_config(tmp_path / "config.yaml") == config


def test_every_field_is_explained():
    text = explain_fields()
    pending = [("", Config)]
    while pending:
        prefix, cls = pending.pop()
        for field in dataclasses.fields(cls):
            if dataclasses.is_dataclass(field.type):
                pending.append((f"{prefix}{field.name}.", field.type))
                continue
            line = text[text.index(f"--{prefix}{field.name} ") :]
            assert f" {field.name}: " in cls.__doc__, field.name
            start = cls.__doc__.split(f" {field.name}: ")[1].splitlines()[0].split()[:3]
            assert " ".join(start) in " ".join(line.split()), field.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimizer: {learning_rte: 1}", "learning_rte'. Did you mean optimizer.learning_rate"),
        ("sed: 3", "Did you mean seed"),
        ("optimizer: {learning_rate: fast}", "optimizer.learning_rate"),
        ("model: {classifier: cls}", "model.classifier"),
        ("model: {variant: B/15, image_size: 32}", "variant='B/15'. Did you mean 'B/16'"),
        ("model: {variant: null, hidden_size: 8}", "Missing: model.patch_size, model.num_layers"),
        ("model: {dropout_rate: 1.5}", "`model.dropout_rate` must be at least 0 and below 1. Rec"),
        ("model: {attention_dropout_rate: -0.1}", "`model.attention_dropout_rate` must be at lea"),
        ("model: {stochastic_depth_rate: 1}", "`model.stochastic_depth_rate` must be at least 0"),
        ("model: {patch_keep_rate: 0}", "`model.patch_keep_rate` must be above 0 and at most 1"),
        ("model: {image_size: 0}", "`model.image_size` must be a side of at least 1 pixel, or ["),
        ("model: {patch_size: [4, 0]}", "`model.patch_size` must be a side of at least 1 pixel"),
        ("model: {num_heads: -3}", "`model.num_heads` must be at least 1. Received: -3"),
        ("model: {representation_size: 0}", "`model.representation_size` must be at least 1, or"),
        ("augment: {scale: -0.1}", "`augment.scale` must be at least 0. Received: -0.1"),
        ("data: {dev_percent: 100}", "`data.dev_percent` must be at least 0 and below 100"),
        ("model: {channels: 0}", "`model.channels` must be at least 1. Received: 0"),
        ("batch: 0", "`batch` must be at least 1. Received: 0"),
        ("total_steps: -1", "`total_steps` must be at least 0"),
    ],
)
def test_faults_of_a_file_are_named(tmp_path, text, message):
    file = tmp_path / "a.yaml"
    file.write_text(text)
    assert message in refused("--config", str(file))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--optimzer.learning_rate", "1"], "Did you mean --optimizer.learning_rate"),
        (["--lr", "1"], "Did you mean --optimizer.learning_rate?"),
        (["--num_epochs", "1"], "Did you mean --epochs?"),
        (["--model.variant", "vit-b16"], "Did you mean 'B/16'?"),
        (["--total_step", "x"], "total_steps"),
        (["--seed", "x"], "`seed` must be a whole number. Received: x"),
        (["--epochs", "three"], "`epochs` must be a number or null. Received: three"),
        (["--sweep", "maybe"], "`sweep` must be true or false. Received: maybe"),
        (["--grid.seeds", "one"], "`grid.seeds` must be a list in brackets of whole numbers. Rec"),
        (
            ["--grid.seeds", "[1, x]"],
            "must be a list in brackets of whole numbers. Received: [1, x]",
        ),
        (["--data.fold", "3"], "a list in brackets of 2 whole numbers or null. Received: 3"),
        (["--model.options", "3"], "`model.options` must be a mapping or null. Received: 3"),
        (
            ["--task", "claszes"],
            "numbers, masks or boxes. Received: claszes. Did you mean",
        ),
        (["--lora.layers", "[quer]"], "Did you mean query?"),
        (["--model", "B/16"], "`model` is a group of fields, such as model.variant. Received: B"),
        (["--augment", "flip"], "`augment` is a group of fields, such as augment."),
        (["--workdir"], "`--workdir` needs a value"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_faults_of_arguments_are_named(arguments, message):
    assert message in refused(*arguments)


def test_a_recipe_is_found_by_name_or_path():
    file = ROOT / "configs" / "finetune" / "pets.yaml"
    for name in ("finetune/pets", "finetune/pets.yaml", "configs/finetune/pets.yaml", file):
        assert find_recipe(name).samefile(file)
    assert parse("--config", "finetune/pets") == parse("--config=configs/finetune/pets.yaml")
    with pytest.raises(FileNotFoundError, match="no recipe 'finetune/pet'. Did you mean finetune/"):
        find_recipe("finetune/pet")


@pytest.mark.parametrize("file", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.stem)
def test_configs_are_valid(file):
    config = read_config(file)
    assert config.name == pathlib.Path(file).stem
