"""Loading copies everything or nothing, and lists what does not fit."""

import re

import keras
import numpy as np
import pytest

import vit_keras
from tests.helpers import ROOT, assert_close, randomize, weights_by_path
from tests.weights.builds import assert_equal_weights, build
from tests.weights.test_damage import assert_refused
from vit_keras import weights
from vit_keras.models import with_image_size
from vit_keras.weights.formats import registry

pytestmark = [pytest.mark.on("torch"), pytest.mark.filterwarnings("ignore:.*computes with")]


@pytest.fixture
def published(rng, tmp_path):
    """A model and its file in Google's format."""
    model, path = build(rng), tmp_path / "published.npz"
    weights.save(model, path, format="google")
    return model, path


def rewritten(path, change):
    """Rewrites an archive after `change` has edited its dictionary of arrays."""
    with np.load(path) as file:
        arrays = dict(file)
    change(arrays)
    np.savez(path, **arrays)
    return path


def test_all_differences_are_listed_at_once_and_nothing_is_loaded(rng, published):
    _, path = published

    def spoil(arrays):
        del arrays["cls"], arrays["Transformer/encoderblock_1/LayerNorm_2/scale"]
        arrays["extra/kernel"] = np.zeros((2, 3), "float32")
        arrays["head/bias"] = np.zeros(6, "float32")

    message = assert_refused(build(rng), rewritten(path, spoil), "model 'vision_transformer'")
    assert message.splitlines()[1:] == [
        "  missing in the file: cls -> cls/cls",
        "  missing in the file: Transformer/encoderblock_1/LayerNorm_2/scale -> "
        "encoderblock_1/LayerNorm_2/gamma",
        "  head/bias -> head/bias is (6,) in the file, (5,) in the model",
        "  not in the model: extra/kernel, (2, 3)",
    ]


def test_a_head_can_be_kept_dropped_or_reset(rng, published):
    source, path = published
    other = build(rng, num_classes=7)
    head = weights_by_path(other)["head/kernel"]
    with pytest.raises(ValueError, match=r"\(24, 5\) in the file, \(24, 7\) in the model"):
        weights.load(other, path)
    weights.load(other, path, head="drop")
    np.testing.assert_array_equal(weights_by_path(other)["head/kernel"], head)
    zeros = {"head/kernel": np.zeros((24, 5), "float32")}
    with pytest.warns(UserWarning, match="classifier in 'published.npz' is all zero"):
        weights.load(build(), rewritten(path, lambda arrays: arrays.update(zeros)))
    weights.load(other, path, head="reset")
    assert not weights_by_path(other)["head/kernel"].any()
    assert not weights_by_path(other)["head/bias"].any()
    features = build(num_classes=None)
    with pytest.raises(ValueError, match='head="drop" leaves the model\'s head as it is'):
        weights.load(features, path)
    weights.load(features, path, head="drop")
    assert_equal_weights(keras.Model(source.input, source.get_layer("head").input), features)
    with pytest.raises(ValueError, match=r"`head` must be one of 'keep', 'drop', 'reset'.*'cut'"):
        weights.load(features, path, head="cut")


def test_dropping_a_head_drops_its_hidden_layer(rng, tmp_path):
    source = build(rng, representation_size=9)
    weights.save(source, tmp_path / "a.npz", format="google")
    loaded = weights.load(build(), tmp_path / "a.npz", head="reset")
    assert weights_by_path(loaded)["cls/cls"].any()
    opened = vit_keras.open(tmp_path / "a.npz", image_size=(16, 24), num_classes=3)
    assert opened.output_shape == (None, 3)
    assert not weights_by_path(opened)["head/kernel"].any()
    assert weights_by_path(opened)["pre_logits/kernel"].any()


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_native_files_of_a_trained_model_are_as_strict(rng, tmp_path, suffix):
    source, path = build(rng), str(tmp_path / f"own{suffix}")
    source.compile(loss="mse", optimizer="adam")
    source.fit(np.zeros((2, 16, 24, 3)), np.ones((2, 5)), verbose=0)
    weights.save(source, path)
    assert_equal_weights(source, weights.load(build(), path))
    message = "missing in the file: encoderblock_2/LayerNorm_0/0 ->"
    assert_refused(build(rng, num_layers=3), path, message)


def test_keras_file_says_the_grid_of_its_positions(rng, tmp_path):
    source = build(rng)
    weights.save(source, tmp_path / "own.keras")
    larger = with_image_size(source, (32, 24))
    loaded = weights.load(build(image_size=(32, 24)), tmp_path / "own.keras")
    assert_equal_weights(loaded, larger)
    assert_equal_weights(vit_keras.open(tmp_path / "own.keras", image_size=(32, 24)), larger)
    other = weights_by_path(vit_keras.open(tmp_path / "own.keras", num_classes=3))
    kept = weights_by_path(source)
    assert not other["head/kernel"].any()
    assert all(np.array_equal(other[path], kept[path]) for path in kept if "head/" not in path)


def test_other_models_load_native_files(rng, tmp_path):
    def classifier():
        inner = build(num_classes=None)
        return keras.Sequential([inner, keras.layers.Dense(3, name="top")], name="nested")

    source = randomize(classifier(), rng)
    source.save_weights(tmp_path / "own.weights.h5")
    assert_equal_weights(source, weights.load(classifier(), tmp_path / "own.weights.h5"))


ONES = np.ones(3)
UNKNOWN = {
    "none.npz": (None, "no run and no checkpoint at .*none"),
    "a.onnx": (None, r"Weights are read from \.npz.*Received: .*a\.onnx"),
    "a.npz": ({"a": ONES, "b": ONES}, r"no known format: its names begin with a, b\. Formats are"),
    "b.npz": ({"patch_embed.proj.weight": np.ones((2, 3, 1, 1))}, "a format other than 'timm'"),
    "": (None, r"must hold model\.safetensors or .* no weights"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_missing_and_unknown_files_are_named(tmp_path, name):
    arrays, message = UNKNOWN[name]
    if name == "a.onnx":
        (tmp_path / name).write_bytes(b"")
    if arrays is not None:
        np.savez(tmp_path / name, **arrays)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        weights.load(build(), tmp_path / name, source="timm" if name == "b.npz" else None)


def test_weights_h5_does_not_say_how_its_model_computes(rng, tmp_path):
    source, path = build(rng, gelu="tanh", classifier="gap"), tmp_path / "own.weights.h5"
    weights.save(source, path)
    with pytest.raises(ValueError, match="do not give `classifier` and `image_size` and `gelu`"):
        vit_keras.open(path)
    said = {"classifier": "gap", "image_size": (16, 24), "gelu": "tanh"}
    opened = vit_keras.open(path, **said)
    images = rng.uniform(-1, 1, (2, 16, 24, 3)).astype("float32")
    assert_close(opened(images), source(images), rtol=2e-6)
    features = keras.Model(source.input, source.layers[-2].output)
    assert_equal_weights(features, vit_keras.open(path, **said, num_classes=0))


def test_the_example_of_a_new_format_works(rng, tmp_path, monkeypatch):
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## A new format is one file and")[1]
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], defined := {})
    monkeypatch.setitem(registry.FORMATS, "example", defined["Example"]("example"))
    source = build(rng, image_size=16, gelu="tanh")
    weights.save(source, tmp_path / "a.npz", format="example")
    with np.load(tmp_path / "a.npz") as file:
        assert "encoderblock_1.LayerNorm_2.gamma" in file.files
    assert_equal_weights(source, vit_keras.open(tmp_path / "a.npz", num_heads=3))
