"""Loading copies everything or nothing; hostile and contradictory files change nothing.

`tests/fuzz/test_hostile_files.py` has the damage to each kind of container.
"""

import json
import re

import keras
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import vit_keras
from tests.fuzz.damage import put_text, texts_of
from tests.helpers import ROOT, assert_close, randomize, to_numpy, weights_by_path
from tests.weights.builds import assert_equal_weights, build
from vit_keras import models, weights
from vit_keras.models import with_image_size
from vit_keras.weights.containers.checks import NOTE_KEY
from vit_keras.weights.formats import registry

pytestmark = [
    pytest.mark.on("torch"),
    pytest.mark.filterwarnings("ignore:.*computes with", "ignore:.*pictures"),
]


def assert_refused(model, path, message, **options):
    """Loading raises, and the model's weights, GELU and epsilon are as before; the message."""
    before, config = weights_by_path(model), model.get_config()
    with pytest.raises(ValueError, match=message) as caught:
        weights.load(model, path, **options)
    after = weights_by_path(model)
    assert all(before[key].tobytes() == after[key].tobytes() for key in before)
    assert model.get_config() == config
    return str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("numerics.gelu", 7, "a.safetensors': `gelu`"),
        ("architecture.representation_size", 10**9, "has at least [0-9]{11,} weights"),
        ("architecture.mlp_dim", 0, "`mlp_dim` must be a positive int. Received: mlp_dim=0"),
        ("architecture.num_heads", "3", "`num_heads` must be an integer. Received: '3'"),
    ],
)
def test_a_note_of_absurd_values_builds_and_changes_no_model(rng, tmp_path, field, value, message):
    path, (part, name) = tmp_path / "a.safetensors", field.split(".")
    weights.save(build(rng), path, format="timm")
    with safe_open(path, "np") as file:
        note = json.loads(file.metadata()["vit_keras"])
    note[part][name] = value
    save_file(load_file(path), path, metadata={"vit_keras": json.dumps(note)})
    with pytest.raises(ValueError, match=message):
        vit_keras.open(path)
    if part == "numerics":
        assert_refused(build(rng), path, message)


MLP = "Transformer/encoderblock_0/MlpBlock_3/Dense_0/kernel"


@pytest.mark.parametrize(
    "changes",
    [
        {MLP: (1, 10**6), "embedding/kernel": (1, 1, 1, 10**5)},  # 2 MB that claim a gigabyte
        {MLP: (0, 2 * 10**9)},  # no bytes that claim 16 GB
    ],
)
def test_shapes_that_contradict_each_other_build_no_model(tmp_path, changes):
    weights.save(build(image_size=16), tmp_path / "a.npz", format="google")
    arrays = dict(np.load(tmp_path / "a.npz"))
    arrays |= {name: np.zeros(shape, "float16") for name, shape in changes.items()}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=r"contradict each other: .* has at least \d+ weights"):
        vit_keras.open(tmp_path / "a.npz")


def test_code_in_keras_files_is_refused(tmp_path):
    images, trap = keras.Input((4,)), tmp_path / "trap"
    place, module = str(trap), tmp_path / "module.keras"
    touch = keras.layers.Lambda(lambda x: (open(place, "w").close(), x)[1], output_shape=(4,))
    keras.Model(images, touch(images)).save(tmp_path / "lambda.keras")
    trap.unlink(missing_ok=True)  # which building the model has made
    keras.Model(images, keras.layers.Dense(3)(images)).save(module)
    config = json.loads(texts_of(module)["config.json"])
    named = {"module": "os", "class_name": "mkdir", "config": {"path": place}}
    config["config"]["layers"][1] |= {**named, "registered_name": "mkdir"}
    put_text(module, "config.json", json.dumps(config))
    for name in ("lambda", "module"):
        with pytest.raises(ValueError, match=rf"{name}\.keras' cannot be read.*deserializ"):
            vit_keras.open(tmp_path / f"{name}.keras")
    assert not trap.exists()


HEAD = "head/bias"
FILES = {"a.npz": "google", "a.safetensors": "timm", "a.pth": "torchvision", "a": "keras_hub"}


def with_last(model, number):
    """A model whose last number of the head's bias is `number`."""
    bias = model.get_layer("head").bias
    bias.assign(np.append(to_numpy(bias)[:-1], number))
    return model


SMALL = [(name, -1e5, "float16") for name in (*FILES, "a.weights.h5", "a.keras")]
OTHERS = [("a.npz", 3.4e38, "bfloat16"), ("a.pth", np.nan, "float32")]


@pytest.mark.parametrize(("name", "number", "dtype"), [*SMALL, *OTHERS])
def test_numbers_that_are_not_finite_in_the_model_are_refused(rng, tmp_path, name, number, dtype):
    sizes = {"image_size": 16, "gelu": "tanh" if name == "a.npz" else "exact"}
    source = with_last(build(rng, **sizes), number)
    weights.save(source, tmp_path / name, format=FILES.get(name))
    model = build(np.random.default_rng(1), **sizes, dtype=dtype)
    message = rf"must be finite in the types of the model.* too large: .*{HEAD} as {dtype}"
    message = "must be finite numbers.* NaN or infinity: heads" if np.isnan(number) else message
    assert_refused(model, tmp_path / name, message)


def test_float64_and_the_largest_number_of_a_type(rng, tmp_path):
    weights.save(build(rng, gelu="tanh"), path := tmp_path / "a.npz", format="google")
    arrays = dict(np.load(path))
    bias = arrays[HEAD].astype("float64")
    bias[-1] = 1e300
    np.savez(path, **{**arrays, HEAD: bias})
    assert_refused(build(rng), path, f"too large: .*{HEAD} as float32")
    bias[-1] = 65519.0  # which fits, as it is rounded
    for dtype in ("float64", "float16"):
        np.savez(path, **{**arrays, HEAD: bias.astype(dtype)})
        assert weights_by_path(weights.load(build(dtype="float16"), path))[HEAD][-1] == 65504


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("embedding/kernel", {"channels": 1}),  # the sum of three colors
        ("posembed_input/pos_embedding", {"image_size": (24, 40)}),  # which overshoots
    ],
)
def test_numbers_that_overflow_as_they_are_adapted_are_refused(rng, tmp_path, name, sizes):
    source = build(rng)
    variable = next(v for v in source.weights if v.path == name)
    sign = np.ones(variable.shape) if "kernel" in name else np.sign(to_numpy(variable))
    variable.assign(6e4 * sign)  # each of which float16 holds
    weights.save(source, tmp_path / "a.safetensors", format="huggingface")
    message = f"too large: .* -> {name} as float16"
    model = build(**sizes, dtype="float16")
    assert_refused(model, tmp_path / "a.safetensors", message, interpolation="bicubic")


def test_adapters_too_large_are_refused_and_none_is_added(rng, tmp_path):
    model, path = models.add_lora(build(rng), 2), tmp_path / "a.safetensors"
    weights.save_adapters(model, path)
    arrays = load_file(path)
    with safe_open(path, "np") as file:
        note = {NOTE_KEY: file.metadata()[NOTE_KEY]}
    name = next(key for key in arrays if key.endswith("lora_kernel_b"))
    arrays[name] = np.full(arrays[name].shape, 1e300)
    save_file(arrays, path, note)
    for base in (model, models.merge_lora(model)):
        before = weights_by_path(base)
        with pytest.raises(ValueError, match=f"too large: {name} as float32"):
            weights.load_adapters(base, path)
        assert before.keys() == weights_by_path(base).keys()


def test_kernels_that_overflow_with_their_adapters_are_not_merged(rng):
    model = models.add_lora(build(rng), 2)
    for layer in models.lora_layers(model)[-1:]:
        layer.lora_kernel_a.assign(np.full(layer.lora_kernel_a.shape, 1e30))
        layer.lora_kernel_b.assign(np.full(layer.lora_kernel_b.shape, 1e30))
    with pytest.raises(ValueError, match=f"must be finite .*Received: {layer.path}/kernel"):
        models.merge_lora(model)


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
    "none.npz": (None, "no run or checkpoint at .*none"),
    "a.npz": ({"a": ONES, "b": ONES}, r"no known format: the first names are a, b\. Formats are"),
    "b.npz": ({"patch_embed.proj.weight": np.ones((2, 3, 1, 1))}, "a format other than 'timm'"),
    "": (None, r"must hold model\.safetensors or .* no weights"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_missing_and_unknown_files_are_named(tmp_path, name):
    arrays, message = UNKNOWN[name]
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
