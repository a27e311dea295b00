"""Weights in several shards with an index, from a folder and from a hub on loopback."""

import functools
import json
import os
import shutil

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from safetensors.numpy import load_file, save_file

import vit_keras
from tests.helpers import GOLDEN, to_numpy
from vit_keras import weights

pytestmark = pytest.mark.on("torch")

WHOLE = GOLDEN / "families" / "hf_dinov2_classify"
ADDRESS = "hf://ann/pets"
INDEX, FIRST, SECOND = (
    "model.safetensors.index.json",
    *(f"model-0000{number}-of-00002.safetensors" for number in (1, 2)),
)


def write_bin(tensors, path):
    torch.save({name: torch.from_numpy(array) for name, array in tensors.items()}, path)


def split(folder, suffix=".safetensors"):
    """Writes the golden model in two shards, as transformers does; returns the shards' names."""
    folder.mkdir()
    for name in ("config.json", "preprocessor_config.json"):
        shutil.copy(WHOLE / name, folder)
    tensors = load_file(WHOLE / "model.safetensors")
    stem, write = {".safetensors": ("model", save_file), ".bin": ("pytorch_model", write_bin)}[
        suffix
    ]
    names = [f"{stem}-0000{number}-of-00002{suffix}" for number in (1, 2)]
    halves = [dict(list(tensors.items())[start::2]) for start in (0, 1)]
    shards = {key: name for name, half in zip(names, halves) for key in half}
    for name, half in zip(names, halves):
        write(half, folder / name)
    size = sum(array.nbytes for array in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": shards}
    (folder / f"{stem}{suffix}.index.json").write_text(json.dumps(index))
    return names


@pytest.fixture
def folder(tmp_path):
    split(tmp_path / "shards")
    return tmp_path / "shards"


def answer(path):
    model = vit_keras.open(path)
    shape = (1, *model.input_shape[1:])
    return to_numpy(model(np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")))


@functools.cache
def answer_of_the_whole():
    return answer(WHOLE)


def change(folder, **shards):
    """Writes other shards to the index; a shard of None leaves the tensor out."""
    index = json.loads((folder / INDEX).read_text())
    merged = {**index["weight_map"], **shards}
    index["weight_map"] = {name: shard for name, shard in merged.items() if shard is not None}
    (folder / INDEX).write_text(json.dumps(index))


@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_shards_answer_as_the_whole_file(tmp_path, suffix):
    names = split(tmp_path / "shards", suffix)
    np.testing.assert_array_equal(answer(tmp_path / "shards"), answer_of_the_whole())
    described = weights.describe(tmp_path / "shards")
    assert described["parameters"] == weights.describe(WHOLE)["parameters"]
    files = [os.path.basename(file["path"]) for file in described["files"]]
    assert files[0].endswith(".index.json") and sorted(files[1:]) == names


def test_one_file_is_read_before_shards(folder):
    shutil.copy(WHOLE / "model.safetensors", folder)
    (folder / SECOND).unlink()
    np.testing.assert_array_equal(answer(folder), answer_of_the_whole())


def test_a_missing_shard_and_a_missing_index_are_told(folder):
    (folder / SECOND).unlink()
    with pytest.raises(FileNotFoundError, match=rf"2 shards .* Missing: {SECOND}\. Copy or"):
        answer(folder)
    (folder / INDEX).unlink()  # one file of weights remains, which is no model
    with pytest.raises(FileNotFoundError, match="which has shards without their index"):
        answer(folder)


def test_each_tensor_is_in_the_shard_that_is_named_and_in_no_other(folder):
    moved, gone = list(load_file(folder / FIRST))[:2]
    change(folder, **{moved: SECOND, gone: None, "more": FIRST})
    with pytest.raises(ValueError, match="Each tensor must be in the shard that") as caught:
        answer(folder)
    assert all(name in str(caught.value) for name in ("more", moved, gone))


def test_a_tensor_in_two_shards_is_refused(folder):
    first, second = (load_file(folder / name) for name in (FIRST, SECOND))
    name = next(iter(first))
    save_file({**second, name: first[name] + 1}, folder / SECOND)
    with pytest.raises(ValueError, match=f"and in no other. Others: {name}"):
        answer(folder)


OUTSIDE = ("../x.safetensors", "/x.safetensors", "a/x.safetensors", "a\\x.safetensors", "C:x")


@pytest.mark.parametrize("shard", [*OUTSIDE, "x.bin", "..", "", 7, ["x.safetensors"]])
def test_a_shard_outside_the_folder_or_of_another_kind_is_refused(folder, shard):
    shutil.copy(folder / FIRST, folder.parent / "x.safetensors")
    change(folder, more=shard)
    message = r"must name \.safetensors files in its own folder\. Received: "
    with pytest.raises(ValueError, match=message):
        answer(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"must hold `weight_map`, an object that names the shard .* Received: \[\]"),
        ('{"weight_map": {}}', "must hold `weight_map`"),
        ('{"weight_map": 7}', "must hold `weight_map`"),
        ('{"weight_map": {"a": "b", "a": "c"}}', "the name 'a' appears twice"),
        ('{"weight_map": {"a": "b"', "index.json' is not JSON"),
    ],
)
def test_a_damaged_index_is_refused(folder, text, message):
    (folder / INDEX).write_text(text)
    with pytest.raises(ValueError, match=message):
        answer(folder)


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_shards_of_a_hub_are_downloaded_and_used_offline(serve_hub, folder, monkeypatch):
    server = serve_hub({**contents(folder), "model-00001-of-00009.safetensors": b"x"})
    np.testing.assert_array_equal(answer(ADDRESS), answer_of_the_whole())
    files = [path.rpartition("/")[2] for _, path in server.requests if "/resolve/" in path]
    assert files[-3:] == [INDEX, FIRST, SECOND]
    assert "model-00001-of-00009.safetensors" not in files  # which the index does not name
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    offline = weights.local_path(ADDRESS)
    assert {INDEX, FIRST, SECOND} < {*os.listdir(offline)}
    assert weights.local_path(f"{ADDRESS}/{INDEX}") == os.path.join(offline, INDEX)


@pytest.mark.parametrize("address", [ADDRESS, f"{ADDRESS}/{INDEX}"])
def test_a_download_without_its_last_shard_is_no_model(serve_hub, folder, monkeypatch, address):
    server = serve_hub(contents(folder))
    server.status = {SECOND: 503}
    with pytest.raises(ConnectionError, match="cannot be downloaded: .*503"):
        weights.local_path(address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConnectionError, match="is not in the cache"):
        weights.local_path(address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    server.status = {}
    path = weights.local_path(address)
    assert SECOND in os.listdir(path if os.path.isdir(path) else os.path.dirname(path))


def test_what_a_hub_says_of_shards_is_compared(serve_hub, folder):
    server = serve_hub(contents(folder))
    server.lies = {"names": [INDEX, FIRST, "config.json"]}
    with pytest.raises(ValueError, match=rf"must hold the shards .*\. Missing: {SECOND}"):
        weights.local_path(ADDRESS)
    server.lies = {"etags": {SECOND: "0" * 64}}
    with pytest.raises(ValueError, match=r"its hash is .*, and the hub's is 0000"):
        weights.local_path(ADDRESS)


def test_an_index_of_a_hub_that_leads_outside_downloads_no_shard(serve_hub, folder):
    change(folder, more="../config.safetensors")
    server = serve_hub(contents(folder))
    with pytest.raises(ValueError, match="must name .safetensors files in its own folder"):
        weights.local_path(ADDRESS)
    assert not any(path.endswith(FIRST) for _, path in server.requests)
