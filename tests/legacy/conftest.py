"""Tiny models under the names of vit-keras 0.x, a server for their weights, and old files."""

import types
import urllib.parse
import zipfile

import numpy as np
import pytest

from tests.helpers import GOLDEN
from tests.loopback import FileServer
from vit_keras.legacy import vit
from vit_keras.variants.sizes import Variant
from vit_keras.weights import download, lookup

FOLDER = GOLDEN / "legacy"
VERSIONS = ("0.1.2", "0.2.0")
SMALL = {"patch_size": 8, "num_layers": 2, "hidden_size": 16, "num_heads": 4, "mlp_dim": 24}
TINY = Variant(**{**SMALL, "patch_size": 32})


def published(path, fine_tuned):
    """A tiny file as Google publishes them, of patches of 32 pixels, with 5 or 1000 classes."""
    rng = np.random.default_rng(3)
    with np.load(FOLDER / "published.npz") as file:
        tensors = dict(file)
    tensors["embedding/kernel"] = rng.normal(0, 0.02, (32, 32, 3, 16)).astype("float32")
    if fine_tuned:
        del tensors["pre_logits/kernel"], tensors["pre_logits/bias"]
    else:
        tensors["pre_logits/kernel"] = rng.normal(0, 0.1, (16, 16)).astype("float32")
        tensors["pre_logits/bias"] = rng.normal(0, 0.1, 16).astype("float32")
    classes = 1000 if fine_tuned else 5
    tensors["head/kernel"] = rng.normal(0, 0.1, (16, classes)).astype("float32")
    tensors["head/bias"] = np.linspace(-1, 1, classes, dtype="float32")
    np.savez(path, **tensors)
    return path.read_bytes()


def place(variant, weights):
    """Where the server has published weights."""
    return urllib.parse.urlsplit(lookup(variant, weights).url).path


@pytest.fixture
def outputs():
    """`{version: what that version computed}`."""
    return {version: dict(np.load(FOLDER / f"{version}_outputs.npz")) for version in VERSIONS}


@pytest.fixture(scope="session")
def old_files(tmp_path_factory):
    """A folder with the files of 0.1.2 and 0.2.0, such as `0.1.2_top.h5`."""
    folder = tmp_path_factory.mktemp("legacy")
    for version in VERSIONS:
        with zipfile.ZipFile(FOLDER / f"{version}.zip") as archive:
            archive.extractall(folder)
    return folder


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Makes all variants tiny, and serves their weights from loopback; returns the server."""
    monkeypatch.setattr(vit, "variants", types.SimpleNamespace(get=lambda variant: TINY))
    monkeypatch.setitem(vit.WEIGHTS, "imagenet21k", ("imagenet21k", 5))
    pre_trained = published(tmp_path / "pre_trained.npz", fine_tuned=False)
    fine_tuned = published(tmp_path / "fine_tuned.npz", fine_tuned=True)
    files = {}
    for variant in ("B/16", "B/32", "L/16", "L/32"):
        files[place(variant, "imagenet21k")] = pre_trained
        files[place(variant, "imagenet-384")] = fine_tuned
    with FileServer(files).running() as server:
        monkeypatch.setenv(download.MIRROR, server.url)
        monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
        monkeypatch.setenv("no_proxy", "*")
        yield server
