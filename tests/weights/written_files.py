"""Files of every kind that this package writes, read by other libraries."""

import hashlib
import pathlib
import zipfile

import numpy as np
import pytest

from tests.weights.builds import other_numerics
from vit_keras import weights

KEY = "vit_keras_sha256"
# What is saved under each name: the format, and the file of weights in a folder.
WRITTEN = {
    "google.npz": "google",
    "big_vision.npz": "big_vision",
    "timm.safetensors": "timm",
    "timm.pth": "timm",
    "torchvision.pth": "torchvision",
    "huggingface.bin": "huggingface",
    "huggingface/model.safetensors": "huggingface",
    "hub.weights.h5": "keras_hub",
    "hub/model.weights.h5": "keras_hub",
    "hub/task.weights.h5": "keras_hub",
    "own.weights.h5": None,
    "own.keras": None,
}


def save(model, folder, name):
    """Saves a model; returns what is loaded, and the file of weights."""
    path, file = folder / pathlib.Path(name).parts[0], folder / name
    with other_numerics():
        weights.save(model, path, format=WRITTEN[name])
    return path, file


def digest(arrays, note=b""):
    """The SHA-256 as docs/formats.md defines it."""
    lines = [note]
    for name, array in sorted(arrays.items()):
        assert array.dtype == "<f4"
        lines.append(f"\n{name} float32 {','.join(str(n) for n in array.shape)}\n".encode())
        lines.append(array.tobytes(order="C"))
    return hashlib.sha256(b"".join(lines)).hexdigest()


def read_npz(file):
    with np.load(file) as arrays:
        return dict(arrays), None, b""


def read_safetensors(file):
    from safetensors import safe_open
    from safetensors.numpy import load_file

    with safe_open(file, "np") as opened:
        metadata = opened.metadata()
    return load_file(file), metadata[KEY], metadata["vit_keras"].encode()


def read_torch(file):
    state = pytest.importorskip("torch").load(file, weights_only=True)
    return {name: tensor.numpy() for name, tensor in state.items()}, None, b""


def read_h5(file):
    h5py = pytest.importorskip("h5py")
    arrays = {}

    def note(path, item):
        if isinstance(item, h5py.Dataset) and "seed_generator" not in path:
            arrays[named(opened, path)] = item[()]

    def named(opened, path):
        """The names of the layers in place of the groups', as in docs/formats.md."""
        parts, names = path.split("/"), []
        for end in range(len(parts) - 1):
            place = "/".join([*parts[: end + 1], "vars"])
            if parts[end] != "vars" and place in opened and "name" in opened[place].attrs:
                names.append(opened[place].attrs["name"])
        return "/".join([*names, parts[-1]])

    with h5py.File(file) as opened:
        opened.visititems(note)
        return arrays, opened.attrs[KEY], b""


LIBRARIES = {
    ".npz": read_npz,
    ".safetensors": read_safetensors,
    ".pth": read_torch,
    ".bin": read_torch,
    ".h5": read_h5,
}


def rewrite(file, change, names=lambda name: True):
    """Writes an archive anew with changed members, so that all checksums fit."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if names(name)}
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, change(content))
