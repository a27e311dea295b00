"""A field that is given is not undermined by other fields of files that come before it."""

import pytest

from vit_keras.config import ModelConfig, UsageError, parse_config, read_config

pytestmark = pytest.mark.once
SMALL = "{patch_size: 4, hidden_size: 8, num_layers: 1, num_heads: 2, mlp_dim: 8}"


def parse(tmp_path, *arguments, **files):
    """Parses `arguments`, in which NAME.yaml stands for the file with that text."""
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return parse_config([str(tmp_path / a) if a.endswith(".yaml") else a for a in arguments])


def test_a_recipe_applies_only_if_it_or_nothing_is_named(tmp_path):
    plain = parse(tmp_path, "--dataset", "folder:photos", "--model.variant", "Ti/16")
    assert plain.model == ModelConfig("Ti/16") and plain.batch == 512
    assert (plain.model.channels, plain.model.image_size, plain.total_steps) == (3, 224, 10_000)
    digits = parse(tmp_path, "--seed", "1")
    assert (digits.dataset, digits.model.hidden_size, digits.model.channels) == ("digits", 64, 1)
    other = parse(tmp_path, "--config", "a.yaml", a="seed: 2")
    assert other.model == ModelConfig("B/16") and other.seed == 2


def test_a_variant_replaces_the_sizes_of_files_before_it(tmp_path):
    small = f"model: {SMALL[:-1]}, image_size: 32, dropout_rate: 0.1}}"
    model = parse(tmp_path, "--model.variant", "S/16", "--config", "a.yaml", a=small).model
    assert model == ModelConfig("S/16", image_size=32, dropout_rate=0.1)
    model = parse(tmp_path, "--config", "a.yaml", "--config", "b.yaml", a=small, b="{}").model
    assert model.variant is None and model.hidden_size == 8
    later = {"a": small, "b": "model: {variant: L/32}"}
    assert parse(tmp_path, "--config", "a.yaml", "--config", "b.yaml", **later).model.variant == (
        "L/32"
    )


def test_sizes_stand_over_the_variant_of_a_file(tmp_path):
    text = {"a": "model: {variant: S/16}"}
    model = parse(tmp_path, "--config", "a.yaml", "--model.num_layers", "3", **text).model
    assert (model.variant, model.num_layers) == ("S/16", 3)
    assert model.summary() == "S/16 with num_layers=3, 224x224x3 images"
    sizes = [word for size in ("patch_size", "hidden_size", "num_layers", "num_heads", "mlp_dim")
             for word in (f"--model.{size}", "8")]  # fmt: skip
    model = parse(tmp_path, "--config", "a.yaml", *sizes, **text).model
    assert model.variant is None and model.hidden_size == 8
    with pytest.raises(UsageError, match=r"Give `model\.variant`, or all sizes\. Missing"):
        parse(tmp_path, "--dataset", "digits", "--model.hidden_size", "8")


def test_weights_replace_the_architecture_of_files_before_them(tmp_path):
    recipe = "model: {variant: S/16, image_size: 384, classifier: gap, dropout_rate: 0.2}"
    given = ("--model.weights", str(tmp_path), "--config", "a.yaml")
    model = parse(tmp_path, *given, a=recipe).model
    assert not model.is_complete and model.dropout_rate == 0.2
    assert {model.variant, model.image_size, model.channels, model.classifier} == {None}
    assert parse(tmp_path, *given, "--model.image_size", "96", a=recipe).model.image_size == 96
    named = parse(tmp_path, "--config", "a.yaml", "--model.weights", "imagenet", a=recipe).model
    assert (named.variant, named.image_size) == ("S/16", None)  # a name belongs to a variant
    both = "model: {variant: S/16, image_size: 384, weights: imagenet}"
    model = parse(tmp_path, "--config", "b.yaml", b=both).model
    assert (model.variant, model.image_size) == ("S/16", 384)


def test_the_later_of_two_ways_to_say_it_counts(tmp_path):
    config = parse(tmp_path, "--config", "a.yaml", "--epochs", "3", a="total_steps: 7")
    assert (config.epochs, config.total_steps) == (3, None)
    config = parse(tmp_path, "--config", "a.yaml", "--total_steps", "7", a="epochs: 3")
    assert (config.epochs, config.total_steps) == (None, 7)
    warmup = {"a": "optimizer: {warmup_fraction: 0.1}", "b": "optimizer: {warmup_steps: 5}"}
    for files, expected in (("ab", (5, None)), ("ba", (0, 0.1))):
        words = [word for name in files for word in ("--config", f"{name}.yaml")]
        optimizer = parse(tmp_path, *words, **warmup).optimizer
        assert (optimizer.warmup_steps, optimizer.warmup_fraction) == expected


def test_both_ways_at_once_are_refused(tmp_path):
    with pytest.raises(UsageError, match="`epochs` and `total_steps`: give only one of them.*3.*7"):
        parse(tmp_path, "--epochs=3", "--total_steps=7")
    with pytest.raises(UsageError, match="warmup_steps` and .*fraction`: give only one"):
        parse(tmp_path, "--optimizer.warmup_steps=3", "--optimizer.warmup_fraction=0.1")


def test_epochs_are_counted_in_updates(tmp_path):
    config = parse(tmp_path, "--dataset=x", "--epochs=2.5", "--batch=8", "--steps_per_execution=2")
    counted = config.count_steps(images=100)  # 12.5 updates an epoch, in pairs
    assert (counted.epochs, counted.total_steps) == (None, 32)
    assert (counted.eval_every, counted.checkpoint_every) == (12, 12)
    assert parse(tmp_path, "--dataset=x", "--epochs=1").count_steps(10).total_steps == 1
    given = parse(tmp_path, "--dataset=x", "--epochs=1", "--eval_every=3").count_steps(5120)
    assert (given.total_steps, given.eval_every, given.checkpoint_every) == (10, 3, 10)
    assert given.optimizer.warmup(10) == 0
    assert parse(tmp_path, "--optimizer.warmup_fraction=0.25").optimizer.warmup(10) == 2


def test_a_file_of_fields_names_no_other_files(tmp_path):
    (tmp_path / "config.yaml").write_text("model: /dev/zero")
    with pytest.raises(
        UsageError, match=r"config.yaml' cannot be .*`model` is a group of fields.*/dev/zero"
    ):
        read_config(tmp_path / "config.yaml")
    (tmp_path / "config.yaml").write_text("config: /dev/zero")
    with pytest.raises(UsageError, match=r"config.yaml' cannot be .*There is no field 'config'"):
        read_config(tmp_path / "config.yaml")
