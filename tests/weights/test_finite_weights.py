"""Numbers that are finite in a file and not in a model's variables, in every kind of file."""

import keras
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import vit_keras
from tests.fuzz.damage import put_text, texts_of
from tests.helpers import to_numpy, weights_by_path
from tests.weights.builds import build
from vit_keras import models, weights
from vit_keras.weights.containers.checks import NOTE_KEY

pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore:.*computes with", "ignore:.*pictures"),
]
HEAD = "head/bias"
FILES = {"a.npz": "google", "a.safetensors": "timm", "a.pth": "torchvision", "a": "keras_hub"}


def assert_refused(model, path, message, **options):
    before = weights_by_path(model)
    with pytest.raises(ValueError, match=message):
        weights.load(model, path, **options)
    after = weights_by_path(model)
    assert all(before[key].tobytes() == after[key].tobytes() for key in before)


def assign_last(model, name, number):
    variable = next(v for v in model.weights if v.path == name)
    values = np.array(to_numpy(variable))
    values.flat[-1] = number
    variable.assign(values)


@pytest.mark.parametrize("name", [*FILES, "a.weights.h5", "a.keras"])
@pytest.mark.parametrize(("number", "dtype"), [(-1e5, "float16"), (3.4e38, "bfloat16")])
def test_numbers_too_large_for_the_model_are_refused_and_nothing_changes(
    rng, tmp_path, name, number, dtype
):
    sizes = {"image_size": 16, "gelu": "tanh" if name == "a.npz" else "exact"}
    source = build(rng, **sizes)
    assign_last(source, HEAD, number)
    weights.save(source, tmp_path / name, format=FILES.get(name))
    model = build(np.random.default_rng(1), **sizes, dtype=dtype)
    message = rf"must be finite in the types of the model.* too large: .*{HEAD} as {dtype}"
    assert_refused(model, tmp_path / name, message)


def test_float64_and_the_largest_number_of_a_type(rng, tmp_path):
    weights.save(build(rng, gelu="tanh"), tmp_path / "a.npz", format="google")
    arrays = dict(np.load(tmp_path / "a.npz"))
    bias = arrays[HEAD].astype("float64")
    bias[-1] = 1e300
    np.savez(tmp_path / "b.npz", **{**arrays, HEAD: bias})
    assert_refused(build(rng), tmp_path / "b.npz", f"too large: .*{HEAD} as float32")
    bias[-1] = 65519.0  # which fits, as it is rounded
    for dtype in ("float64", "float16"):
        np.savez(tmp_path / "b.npz", **{**arrays, HEAD: bias.astype(dtype)})
        model = weights.load(build(dtype="float16"), tmp_path / "b.npz")
        assert weights_by_path(model)[HEAD][-1] == 65504


def test_a_keras_file_of_float16_is_refused(rng, tmp_path):
    source, path = build(rng), tmp_path / "a.keras"
    assign_last(source, HEAD, 1e5)
    weights.save(source, path)
    text = texts_of(path)["config.json"]
    put_text(path, "config.json", text.replace('"float32"', '"float16"'))
    with pytest.raises(ValueError, match=f"too large: {HEAD} as float16"):
        vit_keras.open(path)


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
    base, path = build(rng), tmp_path / "a.safetensors"
    tuned = models.add_lora(keras.models.clone_model(base), 2)
    tuned.set_weights([rng.normal(size=w.shape) for w in tuned.get_weights()])
    weights.save_adapters(tuned, path)
    arrays = load_file(path)
    with safe_open(path, "np") as file:
        note = {NOTE_KEY: file.metadata()[NOTE_KEY]}
    name = next(key for key in arrays if key.endswith("lora_kernel_b"))
    arrays[name] = np.full(arrays[name].shape, 1e300)
    save_file(arrays, path, note)
    model = keras.models.clone_model(base)
    for variable in model.weights:
        variable.assign(next(v for v in tuned.weights if v.path == variable.path))
    with pytest.raises(ValueError, match=f"too large: {name} as float32"):
        weights.load_adapters(model, path)
    assert not models.lora_layers(model)


def test_kernels_that_overflow_with_their_adapters_are_not_merged(rng):
    model = models.add_lora(build(rng), 2)
    for layer in models.lora_layers(model)[-1:]:
        layer.lora_kernel_a.assign(np.full(layer.lora_kernel_a.shape, 1e30))
        layer.lora_kernel_b.assign(np.full(layer.lora_kernel_b.shape, 1e30))
    with pytest.raises(ValueError, match=f"must stay finite .*Received: {layer.path}/kernel"):
        models.merge_lora(model)


def test_embeddings_of_texts_are_finite_as_float32():
    with pytest.raises(ValueError, match="must be finite as float32"):
        weights.TextEmbeddings(("a", "b"), np.full((2, 3), 1e300), scale=1.0)
