"""Adapters in files of their own: onto the base that they belong to, or not at all."""

import json

import numpy as np
import pytest
import safetensors.numpy

import vit_keras
from tests.helpers import assert_close, weights_by_path
from tests.weights.builds import build
from vit_keras import commands, weights
from vit_keras.config import UsageError
from vit_keras.models import add_lora, lora_layers, merge_lora, with_image_size
from vit_keras.models.lora import lora_variables

pytestmark = pytest.mark.on("torch")

NAMES = ["cat", "dog", "owl"]
LAYERS = ("query", "Dense_1")


@pytest.fixture
def base(rng):
    return build(rng)  # of five classes


def tuned(base, rng, image_size=(16, 24), rank=2):
    """A model of three classes and maybe of other images, with random adapters of `base`."""
    model = build(image_size=image_size, num_classes=3)
    resized = weights_by_path(with_image_size(base, image_size))
    for weight in model.weights:
        if not weight.path.startswith("head"):
            weight.assign(resized[weight.path])
    add_lora(model, rank, LAYERS, alpha=3.0, seed=0)
    for variable in [*lora_variables(model), *model.get_layer("head").weights]:
        variable.assign(0.3 * rng.normal(size=variable.shape))
    model.class_names = NAMES
    return model


@pytest.mark.parametrize("suffix", ["keras", "safetensors"])
def test_adapters_are_loaded_onto_the_base_file(rng, tmp_path, suffix):
    base = build(rng, image_size=24)
    file, source = str(tmp_path / "adapters.safetensors"), str(tmp_path / f"base.{suffix}")
    weights.save(base, source, format="timm" if suffix == "safetensors" else None)
    size = (32, 24) if suffix == "keras" else (24, 24)  # timm resizes otherwise than `tuned`
    model = tuned(base, rng, size)
    weights.save_adapters(model, file, base="the base")
    images = rng.normal(size=(2, *size, 3)).astype("float32")
    expected = model.predict(images, verbose=0)
    if suffix == "safetensors":
        bare = safetensors.numpy.load_file(source)  # as timm has it: without the number of heads
        safetensors.numpy.save_file(bare, source)
    again = vit_keras.open(source, adapters=file)
    assert list(again.class_names) == NAMES and len(lora_layers(again)) == 4
    assert {v.path for v in again.trainable_variables} == {
        v.path for v in model.trainable_variables
    }
    assert_close(again.predict(images, verbose=0), expected)
    for variable in lora_variables(model):
        variable.assign(rng.normal(size=variable.shape))
    assert weights.load_adapters(model, file) is model  # takes the place of its adapters
    np.testing.assert_array_equal(model.predict(images, verbose=0), expected)


def test_another_base_and_other_settings_are_refused(base, rng, tmp_path):
    file = tmp_path / "adapters.safetensors"
    model = tuned(base, rng)
    weights.save_adapters(model, file, base="the base")
    other = merge_lora(model)
    before = weights_by_path(other)
    kernel = other.get_layer("encoderblock_1").weights[-1]
    kernel.assign(kernel + 1e-6)
    with pytest.raises(ValueError, match="called 'the base', whose blocks have the SHA-256 .*Open"):
        weights.load_adapters(other, file)
    assert weights_by_path(other).keys() == before.keys() and not lora_layers(other)
    differences = [
        "encoderblock_1/MlpBlock_3/Dense_1/lora_kernel_a: (40, 2) there, None here",
        "\n  head/kernel: (24, 3) there, (24, 5) here",
        "\n  head/bias: (3,) there, (5,) here",
    ]
    missing = "encoderblock_2/MultiHeadDotProductAttention_1/query/lora_kernel_b"
    settings = "rank: 2 there, 4 here"
    for other, parts in (
        (tuned(base, rng, rank=4), [settings]),
        (build(rng, num_classes=5, num_layers=1), differences),
        (build(rng, num_classes=3, num_layers=3), [f"\n  {missing}: None there, (2,"]),
    ):
        with pytest.raises(ValueError) as caught:
            weights.load_adapters(other, file)
        assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_what_is_no_file_of_adapters_is_named(base, rng, tmp_path):
    weights.save(base, path := tmp_path / "timm.safetensors", format="timm")
    for call, model, file, message in (
        (weights.save_adapters, base, path, "same rank and alpha. Received: model .* with none"),
        (weights.save_adapters, tuned(base, rng), "a.npz", "to .safetensors files.*'a.npz'"),
        (weights.load_adapters, base, path, "must be a file of adapters.*missing or damaged"),
    ):
        with pytest.raises(ValueError, match=message):
            call(model, file)
        assert weights.describe_adapters(file) is None


def test_the_commands_show_and_merge_adapters(base, rng, tmp_path, capsys):
    source, file, out = (str(tmp_path / n) for n in ("a.keras", "b.safetensors", "c.keras"))
    weights.save_model(base, source)
    model = tuned(base, rng)
    weights.save_adapters(model, file, base=source)
    commands.run(["info", file, "--json"])
    description = json.loads(capsys.readouterr().out)
    assert (description["kind"], description["rank"], description["alpha"]) == ("adapters", 2, 3.0)
    assert description["layers"] == sorted(LAYERS) and description["train"] == ["head"]
    assert description["base"]["name"] == source and description["class_names"] == NAMES
    assert description["parameters"] == 2 * 2 * (24 + 24 + 40 + 24) + 24 * 3 + 3
    commands.run(["convert", source, out, "--adapters", file])
    merged = weights_by_path(vit_keras.open(out))
    for name, value in weights_by_path(merge_lora(model)).items():
        assert_close(merged[name], value, rtol=1e-6, name=name)
    with pytest.raises(UsageError, match="adapters take no --source and no overrides.*num_heads"):
        commands.run(["convert", source, out, "--adapters", file, "--num_heads", "3"])
