"""Files that would run code or take too much memory are refused before they do."""

import io
import json
import os
import pickle
import struct
import zipfile

import keras
import numpy as np
import pytest

import vit_keras
from tests.weights.builds import build
from vit_keras import weights
from vit_keras.weights.architectures import Numerics
from vit_keras.weights.weight_file import open_weight_file

pytestmark = pytest.mark.once

h5py = pytest.importorskip("h5py")


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.fixture
def trap(tmp_path):
    """The file that must not appear; the payload creates it if it is unpickled."""
    path = tmp_path / "trap"
    pickle.loads(pickle.dumps(Payload(path))).close()
    assert path.exists()
    path.unlink()
    yield path
    assert not path.exists()


def test_object_arrays_in_npz_are_refused(trap, tmp_path):
    np.savez(tmp_path / "a.npz", a=np.array([Payload(trap)], dtype=object))
    with pytest.raises(ValueError, match=r"'a' in .*a\.npz' holds Python objects, which loading"):
        weights.load(build(), tmp_path / "a.npz")


@pytest.mark.parametrize("suffix", [".npz", ".pth", ".safetensors", ".weights.h5", ".keras"])
def test_bare_pickles_are_refused_under_every_name(trap, tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(pickle.dumps({"cls_token": Payload(trap)}))
    with pytest.raises(ValueError, match=f"a{suffix}'.* (is not a|is no)"):
        weights.load(build(), path)


def test_payloads_in_torch_files_are_refused(trap, tmp_path):
    torch = pytest.importorskip("torch")
    state = {"cls_token": torch.ones(3), "x": Payload(trap)}
    for zipped in (True, False):
        torch.save(state, tmp_path / "a.pth", _use_new_zipfile_serialization=zipped)
        with pytest.raises(ValueError, match="holds Python objects, which loading would run"):
            weights.load(build(), tmp_path / "a.pth")
    torch.save([torch.ones(3)], tmp_path / "b.pth")
    with pytest.raises(ValueError, match=r"must hold a state dict\. Received: list"):
        weights.load(build(), tmp_path / "b.pth")


def test_code_in_keras_files_is_refused(trap, tmp_path):
    images, written = keras.Input((4,)), str(trap)
    touch = keras.layers.Lambda(lambda x: (open(written, "w").close(), x)[1], output_shape=(4,))
    keras.Model(images, touch(images)).save(tmp_path / "lambda.keras")
    trap.unlink(missing_ok=True)  # which building the model has made
    keras.Model(images, keras.layers.Dense(3)(images)).save(tmp_path / "plain.keras")
    with zipfile.ZipFile(tmp_path / "plain.keras") as plain:
        files = {name: plain.read(name) for name in plain.namelist()}
    named = {"module": "os", "class_name": "mkdir", "config": {"path": written}}
    config = json.loads(files["config.json"])
    config["config"]["layers"][1] |= {**named, "registered_name": "mkdir"}
    with zipfile.ZipFile(tmp_path / "module.keras", "w") as archive:
        for name, content in (files | {"config.json": json.dumps(config)}).items():
            archive.writestr(name, content)
    for name in ("lambda", "module"):
        for read in (vit_keras.open, vit_keras.open):
            with pytest.raises(ValueError, match=rf"{name}\.keras' cannot be read.*deserializ"):
                read(tmp_path / f"{name}.keras")


def test_pickles_in_h5_are_never_opened(trap, tmp_path):
    with h5py.File(tmp_path / "a.weights.h5", "w") as file:
        group = file.create_group("layers/embedding/vars")
        group.attrs["name"] = "embedding"
        group["0"] = np.void(pickle.dumps(Payload(trap)))
    with pytest.raises(ValueError, match="must be floating-point and in their file"):
        weights.load(build(), tmp_path / "a.weights.h5")


@pytest.mark.parametrize("kind", ["soft", "external", "file"])
def test_h5_links_out_of_the_file_are_refused(tmp_path, kind):
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["secret"] = np.zeros((8, 8, 3, 24), "float32")
    np.zeros(8 * 8 * 3 * 24, "float32").tofile(tmp_path / "raw")
    with h5py.File(tmp_path / "a.weights.h5", "w") as file:
        group = file.create_group("layers/embedding/vars")
        group.attrs["name"] = "embedding"
        if kind == "soft":
            file["layers/head"] = h5py.SoftLink("/layers/embedding")
        elif kind == "external":
            group["0"] = h5py.ExternalLink(str(other), "/secret")
        else:
            shape, source = (8, 8, 3, 24), [(str(tmp_path / "raw"), 0, 18432)]
            group.create_dataset("0", shape, "float32", external=source)
    with pytest.raises(ValueError, match=r"holds a link .* elsewhere|and in their file"):
        weights.load(build(), tmp_path / "a.weights.h5")


def header(shape, dtype="<f4"):
    """The header of a `.npy` file that claims `shape`."""
    file = io.BytesIO()
    description = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, description)
    return file.getvalue()


def test_an_array_that_claims_more_than_it_has_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("embedding/kernel.npy", header((10**6, 10**6)) + bytes(64))
    with pytest.raises(
        ValueError, match=r"claims shape \(1000000, 1000000\) of float32 but has 64"
    ):
        weights.load(build(), tmp_path / "a.npz")


def test_a_zip_bomb_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("head/kernel.npy", "w") as file,
    ):
        file.write(header((2**30 // 4,)))
        for _ in range(2**8):
            file.write(bytes(2**22))
    assert os.path.getsize(path) < 2**21
    with pytest.raises(ValueError, match=r"bytes that claim \d+ bytes of tensors; no such file"):
        vit_keras.open(path)


def test_absurd_sizes_in_the_other_containers_are_refused(tmp_path):
    torch = pytest.importorskip("torch")
    spread = torch.ones(1).as_strided((10**6, 10**6), (0, 0))
    torch.save({"cls_token": spread}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"claims shape \(1000000, 1000000\) but has 4 bytes"):
        weights.load(build(), tmp_path / "a.pth")
    entry = {
        "cls_token": {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 4 * 10**12]}
    }
    head = json.dumps(entry).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + bytes(64))
    with pytest.raises(ValueError, match="is not a safetensors file"):
        weights.load(build(), tmp_path / "a.safetensors")
    with h5py.File(tmp_path / "a.weights.h5", "w") as file:
        group = file.create_group("layers/embedding/vars")
        group.attrs["name"] = "embedding"
        group.create_dataset("0", (10**5, 10**5), "float32", chunks=(100, 100))
    with pytest.raises(ValueError, match="that claim 40000040000 bytes of tensors"):
        weights.load(build(), tmp_path / "a.weights.h5")


def test_shapes_that_contradict_each_other_build_no_model(tmp_path):
    with pytest.warns(UserWarning, match="computes with"):
        weights.save(build(image_size=16), tmp_path / "a.npz", format="google")
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file)
    name = "Transformer/encoderblock_0/MlpBlock_3/Dense_0/kernel"
    arrays[name] = np.zeros((1, 10**6), "float16")  # 2 MB that claim a gigabyte
    arrays["embedding/kernel"] = np.zeros((1, 1, 1, 10**5), "float16")
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=r"contradict each other: .* has at least \d{12} weights"):
        vit_keras.open(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "note",
    ["[]", "{", "{}", '{"architecture": 1, "numerics": 2}', '{"architecture": {}, "numerics": {}}'],
)
def test_spoiled_note_is_refused(tmp_path, note):
    from safetensors.numpy import load_file, save_file

    path = tmp_path / "a.safetensors"
    weights.save(build(image_size=16), path, format="timm")
    tensors = {k: np.array(v) for k, v in load_file(path).items()}
    save_file(tensors, path, metadata={"vit_keras": note})
    with pytest.raises(ValueError, match=r"[Nn]ote in '.*a\.safetensors' is (damaged|not JSON)"):
        vit_keras.open(path, num_heads=3)


def test_a_note_in_a_file_of_a_format_that_says_no_numerics(tmp_path):
    from safetensors.numpy import save_file

    weights.save(build(), tmp_path / "a.weights.h5")
    with open_weight_file(tmp_path / "a.weights.h5") as file:
        tensors = {name: np.array(file.read(name)) for name in file.names}
    note = {"architecture": {}, "numerics": Numerics(gelu="tanh").to_json()}
    save_file(tensors, tmp_path / "a.safetensors", metadata={"vit_keras": json.dumps(note)})
    with open_weight_file(tmp_path / "a.safetensors") as file:
        assert file.format.name == "vit_keras" and file.numerics.gelu == "tanh"


def test_integer_arrays_are_refused(tmp_path):
    weights.save(build(), tmp_path / "a.safetensors", format="timm")
    from safetensors.numpy import load_file, save_file

    tensors = {k: np.array(v) for k, v in load_file(tmp_path / "a.safetensors").items()}
    tensors["pos_embed"] = tensors["pos_embed"].astype("int32")
    save_file(tensors, tmp_path / "a.safetensors")
    with pytest.raises(
        ValueError, match=r"must be floating-point\. Received: 'pos_embed' of int32"
    ):
        weights.load(build(), tmp_path / "a.safetensors")


def test_a_failed_save_leaves_the_old_file(rng, tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    path.write_bytes(b"old")
    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(OSError, match="disk full"), pytest.warns(UserWarning, match="computes"):
        weights.save(build(rng), path, format="google")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]


def fail(*args, **kwargs):
    raise OSError("disk full")
