"""Files of every kind that this package writes, read by other libraries."""

import hashlib
import json
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


def digest(array):
    """The hash as docs/formats.md defines it."""
    assert array.dtype == "<f4"
    first = f"float32 {','.join(str(n) for n in array.shape)}\n".encode()
    return hashlib.sha256(first + array.tobytes(order="C")).hexdigest()


def read_npz(file):
    with zipfile.ZipFile(file) as archive:
        comments = {e.filename[:-4]: e.comment.decode() for e in archive.infolist()}
    with np.load(file) as arrays:
        return dict(arrays), {name: text.split()[1] for name, text in comments.items()}


def read_safetensors(file):
    from safetensors import safe_open
    from safetensors.numpy import load_file

    with safe_open(file, "np") as opened:
        record = json.loads(opened.metadata()[KEY])
        note = opened.metadata()["vit_keras"].encode()
    assert record["note"] == hashlib.sha256(note).hexdigest()
    return load_file(file), record["tensors"]


def read_torch(file):
    torch = pytest.importorskip("torch")
    with zipfile.ZipFile(file) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(f"/{KEY}")]
        record = json.loads(archive.read(member))
    state = torch.load(file, weights_only=True)
    return {name: tensor.numpy() for name, tensor in state.items()}, record["tensors"]


def read_h5(file):
    h5py = pytest.importorskip("h5py")
    arrays, hashes = {}, {}

    def note(name, item):
        if isinstance(item, h5py.Dataset) and "seed_generator" not in name:
            arrays[name], hashes[name] = item[()], item.attrs[KEY].split()[1]

    with h5py.File(file) as opened:
        opened.visititems(note)
        assert len(opened.attrs[KEY].split()[1]) == 64
    return arrays, hashes


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
        members = [(entry, archive.read(entry)) for entry in archive.infolist()]
        comment = archive.comment
    with zipfile.ZipFile(file, "w") as archive:
        for entry, content in members:
            if names(entry.filename):
                new = zipfile.ZipInfo(entry.filename)
                new.comment = entry.comment
                archive.writestr(new, change(content))
        archive.comment = comment
