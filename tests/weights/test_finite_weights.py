"""Numbers that are finite in a file and not in a model's variables, in every kind of file."""

import json
import re
import zipfile

import h5py
import keras
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import vit_keras
from tests.helpers import to_numpy, weights_by_path
from tests.weights.builds import build
from vit_keras import models, weights
from vit_keras.weights.containers.checks import NOTE_KEY

pytestmark = pytest.mark.filterwarnings("ignore:.*computes with", "ignore:.*pictures")
# The type in the file, a number, and the type of the model. The last one fits, as it is rounded.
NUMBERS = [
    ("float64", 1e300, "float32"),
    ("float32", -1e5, "float16"),
    ("float32", 3.4e38, "bfloat16"),
]
FINITE = ("float32", 65519.0, "float16")


def changed(array, dtype, number):
    array = np.array(array, dtype)
    array.flat[-1] = number
    return array


def npz(model, path, change):
    weights.save(model, path / "a.npz", format="google")
    with np.load(path / "a.npz") as file:
        arrays = dict(file)
    name = "Transformer/encoderblock_1/MlpBlock_3/Dense_0/bias"
    np.savez(path / "b.npz", **{**arrays, name: change(arrays[name])})
    return path / "b.npz", name


def safetensors(model, path, change):
    weights.save(model, path / "a.safetensors", format="timm")
    arrays, name = load_file(path / "a.safetensors"), "blocks.1.attn.qkv.weight"
    save_file({**arrays, name: change(arrays[name])}, path / "b.safetensors")
    return path / "b.safetensors", name


def pth(model, path, change):
    weights.save(model, path / "a.pth", format="torchvision")
    arrays, name = torch.load(path / "a.pth"), "encoder.ln.weight"
    torch.save({**arrays, name: torch.from_numpy(change(arrays[name]))}, path / "b.pth")
    return path / "b.pth", name


def shards(model, path, change):
    weights.save(model, path / "a.safetensors", format="timm")
    arrays = load_file(path / "a.safetensors")
    name, folder = "norm.bias", path / "shards"
    folder.mkdir()
    arrays[name] = change(arrays[name])
    places = {key: f"model-0000{1 + (key == name)}-of-00002.safetensors" for key in arrays}
    for shard in set(places.values()):
        save_file({k: x for k, x in arrays.items() if places[k] == shard}, folder / shard)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder, name


def h5(model, path, change):
    weights.save(model, path / "a.weights.h5")
    with h5py.File(path / "a.weights.h5") as source, h5py.File(path / "b.weights.h5", "w") as file:
        _copy(source, file, change)
    return path / "b.weights.h5", "head/bias"


def keras_file(model, path, change):
    model.save(path / "a.keras")
    with zipfile.ZipFile(path / "a.keras") as old, zipfile.ZipFile(path / "b.keras", "w") as new:
        for name in old.namelist():
            if name.endswith(".h5"):
                (path / "old.h5").write_bytes(old.read(name))
                with h5py.File(path / "old.h5") as source, h5py.File(path / "new.h5", "w") as file:
                    _copy(source, file, change)
                new.write(path / "new.h5", name)
            elif name != "hashes.json":
                new.writestr(name, old.read(name))
    return path / "b.keras", "head/bias"


def _copy(source, file, change):
    """A copy of Keras' groups without our hashes, with a change of the last variable of `head`."""

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            file[name] = change(item[()]) if name == "layers/dense/vars/1" else item[()]
        else:
            group = file.require_group(name)
            for key, value in item.attrs.items():
                group.attrs[key] = value

    source.visititems(visit)


FILES = [npz, safetensors, pth, shards, h5, keras_file]


@pytest.mark.parametrize(
    ("write", "dtype", "number", "model_dtype"),
    [(write, *number) for write, number in zip(FILES, NUMBERS * 2)],
)
def test_numbers_too_large_for_the_model_are_refused_and_nothing_changes(
    rng, tmp_path, write, dtype, number, model_dtype
):
    sizes = {"image_size": 16, "gelu": "tanh" if write is npz else "exact"}
    path, name = write(build(rng, **sizes), tmp_path, lambda x: changed(x, dtype, number))
    model = build(np.random.default_rng(1), **sizes, dtype=model_dtype)
    before = weights_by_path(model)
    rule = f"must be finite in the types of the model.*{re.escape(name)}.* as {model_dtype}"
    with pytest.raises(ValueError, match=rule):
        weights.load(model, path)
    after = weights_by_path(model)
    assert all(before[key].tobytes() == after[key].tobytes() for key in before)


@pytest.mark.once
def test_the_largest_number_of_a_type_is_loaded(rng, tmp_path):
    path, _ = h5(build(rng), tmp_path, lambda x: changed(x, "float32", 65519.0))
    model = weights.load(build(dtype="float16"), path)
    assert weights_by_path(model)["head/bias"][-1] == 65504


@pytest.mark.once
def test_a_keras_file_of_float16_is_refused(rng, tmp_path):
    model = build(rng, dtype="float16")
    path, name = keras_file(model, tmp_path, lambda x: changed(x, "float32", 1e5))
    with pytest.raises(ValueError, match=f"too large: {name} as float16"):
        vit_keras.open(path)


@pytest.mark.once
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
    model = build(**sizes, dtype="float16")
    before = weights_by_path(model)
    with pytest.raises(ValueError, match=f"too large: .* -> {name} as float16"):
        weights.load(model, tmp_path / "a.safetensors", interpolation="bicubic")
    after = weights_by_path(model)
    assert all(before[key].tobytes() == after[key].tobytes() for key in before)


@pytest.mark.once
def test_adapters_too_large_are_refused_and_none_is_added(rng, tmp_path):
    base = build(rng)
    tuned = models.add_lora(keras.models.clone_model(base), 2)
    tuned.set_weights([rng.normal(size=w.shape) for w in tuned.get_weights()])
    weights.save_adapters(tuned, tmp_path / "a.safetensors")
    arrays = load_file(tmp_path / "a.safetensors")
    with safe_open(tmp_path / "a.safetensors", "np") as file:
        note = {NOTE_KEY: file.metadata()[NOTE_KEY]}
    name = next(key for key in arrays if key.endswith("lora_kernel_b"))
    arrays[name] = changed(arrays[name], "float64", 1e300)
    save_file(arrays, tmp_path / "b.safetensors", note)
    model = keras.models.clone_model(base)
    for variable in model.weights:
        variable.assign(next(v for v in tuned.weights if v.path == variable.path))
    with pytest.raises(ValueError, match=f"too large: {name} as float32"):
        weights.load_adapters(model, tmp_path / "b.safetensors")
    assert not models.lora_layers(model)


@pytest.mark.once
def test_kernels_that_overflow_with_their_adapters_are_not_merged(rng):
    model = models.add_lora(build(rng), 2)
    for layer in models.lora_layers(model)[-1:]:
        layer.lora_kernel_a.assign(np.full(layer.lora_kernel_a.shape, 1e30))
        layer.lora_kernel_b.assign(np.full(layer.lora_kernel_b.shape, 1e30))
    with pytest.raises(ValueError, match=f"must stay finite .*Received: {layer.path}/kernel"):
        models.merge_lora(model)


@pytest.mark.once
def test_embeddings_of_texts_are_finite_as_float32():
    with pytest.raises(ValueError, match="must be finite as float32"):
        weights.TextEmbeddings(("a", "b"), np.full((2, 3), 1e300), scale=1.0)
