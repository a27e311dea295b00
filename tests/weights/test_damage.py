"""Damaged files are refused before anything is assigned, and the model stays as it was."""

import json
import struct
import zipfile

import numpy as np
import pytest

import vit_keras
from tests.helpers import weights_by_path
from tests.weights.builds import build, other_numerics
from vit_keras import weights
from vit_keras.weights.weight_file import open_weight_file

pytestmark = pytest.mark.once


def load_and_keep(model, path, message):
    """Loads a file that is refused, and compares the model's weights before and after."""
    before, epsilon = weights_by_path(model), model.get_layer("encoder_norm").epsilon
    with pytest.raises(ValueError, match=message):
        weights.load(model, path)
    assert all(np.array_equal(before[k], v) for k, v in weights_by_path(model).items())
    assert model.get_layer("encoder_norm").epsilon == epsilon


@pytest.mark.parametrize("kind", ["int32", "bool", "complex64", "float8_e4m3fn"])
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_a_last_tensor_of_another_type_changes_nothing(rng, tmp_path, kind, suffix):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    path = tmp_path / f"a{suffix}"
    weights.save(build(rng), path, format="timm")
    with open_weight_file(path) as file:
        tensors = {name: torch.tensor(np.array(file.read(name))) for name in file.names}
    tensors["head.weight"] = tensors["head.weight"].to(getattr(torch, kind))
    (save_file if suffix == ".safetensors" else torch.save)(tensors, str(path))
    load_and_keep(build(rng), path, "head.weight")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_named(rng, tmp_path, value):
    model = build(rng)
    model.get_layer("head").bias.assign(np.full(model.get_layer("head").bias.shape, value))
    weights.save(model, tmp_path / "a.pth", format="timm")
    load_and_keep(build(rng), tmp_path / "a.pth", "must be finite .*NaN or infinity: head.bias")


def test_a_note_that_says_an_unknown_computation_changes_nothing(rng, tmp_path):
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    path = tmp_path / "a.safetensors"
    weights.save(build(rng), path, format="timm")
    with safe_open(path, "np") as file:
        note = json.loads(file.metadata()["vit_keras"])
    for field, spoiled in [("gelu", 7), ("layer_norm_epsilon", "x"), ("layer_norm_epsilon", -1)]:
        changed = {**note, "numerics": {**note["numerics"], field: spoiled}}
        save_file(load_file(path), path, metadata={"vit_keras": json.dumps(changed)})
        load_and_keep(build(rng), path, f"note in .*a.safetensors' is damaged: `{field}`")


def test_every_flipped_bit_in_a_pytorch_file_is_found(rng, tmp_path):
    """torch maps the records without a look at their checksums."""
    weights.save(build(rng), tmp_path / "a.pth", format="torchvision")
    data, model = (tmp_path / "a.pth").read_bytes(), build(rng)
    weights.load(model, tmp_path / "a.pth")
    before = weights_by_path(model)
    with zipfile.ZipFile(tmp_path / "a.pth") as archive:
        offsets = [e.header_offset for e in archive.infolist() if "/data/" in e.filename]
    refused = 0
    for place in rng.integers(offsets[0], offsets[-1], 40):
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "b.pth").write_bytes(bytes(flipped))
        try:
            weights.load(model, tmp_path / "b.pth")
        except ValueError as error:
            assert "b.pth" in str(error)
            refused += 1
        assert all(np.array_equal(before[k], v) for k, v in weights_by_path(model).items())
    assert refused > 20  # the others hit the padding between records


def test_compressed_records_and_a_broken_directory_are_named(rng, tmp_path):
    weights.save(build(rng), tmp_path / "a.pth", format="torchvision")
    with zipfile.ZipFile(tmp_path / "a.pth") as archive:
        members = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(tmp_path / "b.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    load_and_keep(build(rng), tmp_path / "b.pth", "not be compressed.*b.pth'")
    data = bytearray((tmp_path / "a.pth").read_bytes())
    directory = data.rindex(b"PK\x01\x02")
    data[directory : directory + 4] = b"XXXX"
    (tmp_path / "c.pth").write_bytes(bytes(data))
    load_and_keep(build(rng), tmp_path / "c.pth", "c.pth'")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pth", ".keras"])
def test_damaged_file_leaves_the_model_as_it_was(rng, tmp_path, suffix):
    source = {".npz": "big_vision", ".safetensors": "timm", ".pth": "torchvision"}.get(suffix)
    path = tmp_path / f"a{suffix}"
    with other_numerics():
        weights.save(build(rng), path, format=source)
    whole = path.read_bytes()
    model = build(rng)
    before = weights_by_path(model)
    two_disks = b"PK\6\7" + struct.pack("<LQL", 0, 0, 2)  # at which zipfile raises an error
    for damaged in (whole[: len(whole) // 2], whole[:-22] + two_disks + whole[-22:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.[a-z]+'"):
            weights.load(model, path)
        with pytest.raises(ValueError, match=r"a\.[a-z]+'"):
            vit_keras.open(path)
    assert all(np.array_equal(before[k], v) for k, v in weights_by_path(model).items())


def test_a_flipped_bit_in_an_archive_is_found_before_anything_is_assigned(rng, tmp_path):
    path = tmp_path / "a.npz"
    with pytest.warns(UserWarning, match="computes with"):
        weights.save(build(rng), path, format="google")
    data = bytearray(path.read_bytes())
    data[-len(data) // 3] ^= 1
    path.write_bytes(bytes(data))
    model = build(rng)
    before = weights_by_path(model)
    with pytest.raises(ValueError, match="is damaged"):
        weights.load(model, path)
    assert all(np.array_equal(before[k], v) for k, v in weights_by_path(model).items())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("representation_size", 10**9, "has at least [0-9]{11,} weights"),
        ("channels", 10**9, "has at least [0-9]{11,} weights"),
        ("num_registers", 10**9, "has at least [0-9]{11,} weights"),
        ("mlp_dim", 0, "`mlp_dim` must be a whole number of at least 1. Received: 0"),
        ("patch_size", [0, 4], r"`patch_size` must be .*Received: \(0, 4\)|Received: \[0, 4\]"),
        ("num_heads", "3", "`num_heads` must be of type int. Received: '3'"),
        ("num_layers", 2.5, "`num_layers` must be of type int. Received: 2.5"),
    ],
)
def test_a_note_that_claims_absurd_sizes_builds_no_model(rng, tmp_path, field, value, message):
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    path = tmp_path / "a.safetensors"
    weights.save(build(rng), path, format="timm")
    with safe_open(path, "np") as file:
        note = json.loads(file.metadata()["vit_keras"])
    note["architecture"][field] = value
    save_file(load_file(path), path, metadata={"vit_keras": json.dumps(note)})
    with pytest.raises(ValueError, match=message):
        vit_keras.open(path)


def test_an_empty_kernel_that_claims_a_width_builds_no_model(tmp_path):
    with pytest.warns(UserWarning, match="computes with"):
        weights.save(build(), tmp_path / "a.npz", format="google")
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file)
    name = "Transformer/encoderblock_0/MlpBlock_3/Dense_0/kernel"
    arrays[name] = np.zeros((0, 2 * 10**9), "float32")  # no bytes that claim 16 GB
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match="contradict each other: .* weights, the file has"):
        vit_keras.open(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        ("huggingface", {"id2label": 5}),
        ("huggingface", {"id2label": ["a"]}),
        ("huggingface", {"image_size": "big"}),
        ("huggingface", {"num_attention_heads": "three"}),
        ("huggingface", {"layer_norm_eps": []}),
        ("huggingface", {"hidden_act": 3}),
        ("timm", {"model_args": []}),
        ("timm", {"pretrained_cfg": 7}),
        ("timm", {"architecture": 9}),
        ("timm", {"model_args": {"img_size": {}}}),
        ("timm", {"label_names": 4}),
    ],
)
def test_a_field_of_another_type_is_a_fault_of_the_file(rng, tmp_path, form, fields):
    weights.save(build(rng), tmp_path / "folder", format=form)
    config = tmp_path / "folder" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **fields}))
    path = tmp_path / "folder" / "model.safetensors"
    from safetensors.numpy import load_file, save_file

    save_file(load_file(path), path)  # without the note, which would say it better
    with pytest.raises(ValueError, match="folder|`|Received"):
        vit_keras.open(tmp_path / "folder")


def test_brackets_without_end_are_not_json(rng, tmp_path):
    weights.save(build(rng), tmp_path / "folder", format="timm")
    (tmp_path / "folder" / "config.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"config.json' is not JSON"):
        vit_keras.open(tmp_path / "folder")


@pytest.mark.parametrize(
    "name",
    [
        *("model.safetensors", "pytorch_model.bin", "a.npz", "a.weights.h5", "a.keras"),
        "model-00001-of-00001.safetensors",
    ],
)
def test_what_a_clone_left_in_place_of_weights_is_named(tmp_path, name):
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    path = tmp_path / name
    if name.startswith("model-"):
        path = tmp_path / "model.safetensors.index.json"
        path.write_text(json.dumps({"weight_map": {"cls_token": name}}))
    with pytest.raises(ValueError, match=rf"{name}' is a pointer of Git LFS\. Run `git lfs pull`"):
        vit_keras.open(path)
