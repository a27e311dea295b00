"""Files that would run code, or whose content contradicts itself, change nothing in a model.

`tests/fuzz/test_hostile_files.py` has the damage to each kind of container.
"""

import json
import zipfile

import keras
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import vit_keras
from tests.helpers import weights_by_path
from tests.weights.builds import build, other_numerics
from vit_keras import weights
from vit_keras.weights.architectures import Numerics
from vit_keras.weights.weight_file import open_weight_file

pytestmark = pytest.mark.once


def load_and_keep(model, path, message):
    """Loads a file that is refused, and compares the model's weights before and after."""
    before, epsilon = weights_by_path(model), model.get_layer("encoder_norm").epsilon
    with pytest.raises(ValueError, match=message):
        weights.load(model, path)
    assert all(np.array_equal(before[k], v) for k, v in weights_by_path(model).items())
    assert model.get_layer("encoder_norm").epsilon == epsilon


@pytest.mark.parametrize(
    ("suffix", "change", "message"),
    [
        (".safetensors", lambda x: x.int(), "must be floating-point.*head.weight"),
        (".safetensors", lambda x: x.to(torch.float8_e4m3fn), "head.weight"),
        (".pth", lambda x: x.to(torch.complex64), "head.weight"),
        (".pth", lambda x: x / 0, "must be finite .*NaN or infinity: head.weight"),
    ],
)
def test_a_last_tensor_that_is_no_weight_changes_nothing(rng, tmp_path, suffix, change, message):
    path = tmp_path / f"a{suffix}"
    weights.save(build(rng), path, format="timm")
    with open_weight_file(path) as file:
        tensors = {name: torch.tensor(np.array(file.read(name))) for name in file.names}
    tensors["head.weight"] = change(tensors["head.weight"])
    if suffix == ".pth":
        torch.save(tensors, path)
    else:
        import safetensors.torch

        safetensors.torch.save_file(tensors, path)
    load_and_keep(build(rng), path, message)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("numerics.gelu", 7, "a.safetensors': `gelu`"),
        ("numerics.layer_norm_epsilon", -1, "a.safetensors': `layer_norm_epsilon`"),
        ("architecture.representation_size", 10**9, "has at least [0-9]{11,} weights"),
        ("architecture.channels", 10**9, "has at least [0-9]{11,} weights"),
        ("architecture.num_registers", 10**9, "has at least [0-9]{11,} weights"),
        ("architecture.mlp_dim", 0, "`mlp_dim` must be a positive int. Received: mlp_dim=0"),
        ("architecture.patch_size", [0, 4], r"`patch_size` must be .*\[0, 4"),
        ("architecture.num_heads", "3", "`num_heads` must be of type int. Received: '3'"),
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
        load_and_keep(build(rng), path, message)


@pytest.mark.parametrize(
    "changes",
    [
        {"mlp": (1, 10**6), "embedding/kernel": (1, 1, 1, 10**5)},  # 2 MB that claim a gigabyte
        {"mlp": (0, 2 * 10**9)},  # no bytes that claim 16 GB
    ],
)
def test_shapes_that_contradict_each_other_build_no_model(tmp_path, changes):
    with other_numerics(), pytest.warns(UserWarning, match="prepares"):
        weights.save(build(image_size=16), tmp_path / "a.npz", format="google")
    arrays = dict(np.load(tmp_path / "a.npz"))
    for name, shape in changes.items():
        name = "Transformer/encoderblock_0/MlpBlock_3/Dense_0/kernel" if name == "mlp" else name
        arrays[name] = np.zeros(shape, "float16")
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=r"contradict each other: .* has at least \d+ weights"):
        vit_keras.open(tmp_path / "a.npz")


def test_code_in_keras_files_is_refused(tmp_path):
    images, trap = keras.Input((4,)), tmp_path / "trap"
    place = str(trap)
    touch = keras.layers.Lambda(lambda x: (open(place, "w").close(), x)[1], output_shape=(4,))
    keras.Model(images, touch(images)).save(tmp_path / "lambda.keras")
    trap.unlink(missing_ok=True)  # which building the model has made
    keras.Model(images, keras.layers.Dense(3)(images)).save(tmp_path / "plain.keras")
    with zipfile.ZipFile(tmp_path / "plain.keras") as plain:
        files = {name: plain.read(name) for name in plain.namelist()}
    named = {"module": "os", "class_name": "mkdir", "config": {"path": place}}
    config = json.loads(files["config.json"])
    config["config"]["layers"][1] |= {**named, "registered_name": "mkdir"}
    with zipfile.ZipFile(tmp_path / "module.keras", "w") as archive:
        for name, content in (files | {"config.json": json.dumps(config)}).items():
            archive.writestr(name, content)
    for name in ("lambda", "module"):
        with pytest.raises(ValueError, match=rf"{name}\.keras' cannot be read.*deserializ"):
            vit_keras.open(tmp_path / f"{name}.keras")
    assert not trap.exists()


def test_a_note_in_a_file_of_a_format_that_says_no_numerics(tmp_path):
    weights.save(build(), tmp_path / "a.weights.h5")
    with open_weight_file(tmp_path / "a.weights.h5") as file:
        tensors = {name: np.array(file.read(name)) for name in file.names}
    note = {"architecture": {}, "numerics": Numerics(gelu="tanh").to_json()}
    save_file(tensors, tmp_path / "a.safetensors", metadata={"vit_keras": json.dumps(note)})
    with open_weight_file(tmp_path / "a.safetensors") as file:
        assert file.format.name == "vit_keras" and file.numerics.gelu == "tanh"


def test_a_pointer_in_the_place_of_a_shard_is_named(tmp_path):
    name = "model-00001-of-00001.safetensors"
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"cls_token": name}}))
    with pytest.raises(ValueError, match=rf"{name}' is a pointer of Git LFS\. Run `git lfs pull`"):
        vit_keras.open(path)
