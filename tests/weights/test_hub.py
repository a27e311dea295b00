"""Models in shards, on the Hugging Face hub and on Kaggle: from loopback and from caches."""

import functools
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from safetensors.numpy import load_file, save_file

import vit_keras
from tests.helpers import GOLDEN, randomize, to_numpy
from tests.weights.builds import assert_equal_weights
from tests.weights.hub_server import COMMIT
from vit_keras import weights
from vit_keras.models import VisionTransformer
from vit_keras.support.files import HubAddress, is_address, parse_hf
from vit_keras.weights import hub

pytestmark = pytest.mark.on("torch")

FAMILIES = GOLDEN / "families"
DINO = FAMILIES / "hf_dinov2_classify"
ADDRESS = "hf://ann/pets"
INDEX = "model.safetensors.index.json"
FIRST, SECOND = SHARDS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]


def contents(folder):
    """The files of a golden folder, without its inputs and outputs."""
    return {f.name: f.read_bytes() for f in folder.iterdir() if f.name != "io.npz"}


def answer(path):
    model = vit_keras.open(path)
    shape = (1, *model.input_shape[1:])
    return to_numpy(model(np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")))


expected_of = functools.cache(answer)


def split(folder, stem="model", suffix="safetensors"):
    """Writes the golden model in two shards, as transformers does."""
    folder.mkdir()
    for name in ("config.json", "preprocessor_config.json"):
        shutil.copy(DINO / name, folder)
    tensors, index = load_file(DINO / "model.safetensors"), {}
    for number in (1, 2):
        name = f"{stem}-0000{number}-of-00002.{suffix}"
        half = dict(list(tensors.items())[number - 1 :: 2])
        if suffix == "bin":
            torch.save({name: torch.from_numpy(x) for name, x in half.items()}, folder / name)
        else:
            save_file(half, folder / name)
        index |= dict.fromkeys(half, name)
    (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps({"weight_map": index}))
    return folder


@pytest.fixture
def shards(tmp_path):
    return split(tmp_path / "shards")


@pytest.mark.parametrize("kind", [("model", "safetensors"), ("pytorch_model", "bin")])
def test_shards_answer_as_the_whole_file(tmp_path, kind):
    folder = split(tmp_path / "a", *kind)
    np.testing.assert_array_equal(answer(folder), expected_of(DINO))
    described = weights.describe(folder)
    assert described["parameters"] == weights.describe(DINO)["parameters"]
    files = [os.path.basename(file["path"]) for file in described["files"]]
    assert files[0].endswith(".index.json") and len(files) == 3


def test_a_missing_shard_and_a_missing_index_are_told(shards):
    (shards / SECOND).unlink()
    with pytest.raises(FileNotFoundError, match=f"No such file or directory: .*{SECOND}"):
        answer(shards)
    shutil.copy(DINO / "model.safetensors", shards)  # which is read before shards
    np.testing.assert_array_equal(answer(shards), expected_of(DINO))
    (shards / "model.safetensors").unlink()
    (shards / INDEX).unlink()  # one file of weights remains, which is no model
    with pytest.raises(FileNotFoundError, match="which has shards without their index"):
        answer(shards)


def test_a_tensor_in_two_shards_is_refused(shards):
    first, second = (load_file(shards / name) for name in SHARDS)
    name = next(iter(first))
    save_file({**second, name: first[name] + 1}, shards / SECOND)
    with pytest.raises(ValueError, match=f"each tensor once. Received: {name} twice"):
        answer(shards)


@pytest.mark.parametrize("name", ["classifier", "encoder.layer.1."])
def test_a_tensor_that_only_the_index_names_is_missed(shards, name):
    """Without the check, the model would have no head, or fewer blocks."""
    for shard in SHARDS:
        kept = {k: v for k, v in load_file(shards / shard).items() if name not in k}
        save_file(kept, shards / shard)
    with pytest.raises(ValueError, match=f"tensors that its files do not have: .*{name}"):
        answer(shards)


OTHERS = ("../x.safetensors", "/x.safetensors", "a\\x.safetensors", "x.bin")
OUTSIDE = r"must name a \.safetensors file in its own folder for each tensor. Received: \["


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"weight_map": {}}', OUTSIDE),
        ('{"weight_map": {"a": "b", "a": "c"}}', "the name 'a' appears twice"),
        *((json.dumps({"weight_map": {"a": shard}}), OUTSIDE) for shard in OTHERS),
    ],
)
def test_a_damaged_index_is_refused(shards, text, message):
    (shards / INDEX).write_text(text)
    with pytest.raises(ValueError, match=message):
        answer(shards)


@pytest.mark.parametrize(
    ("name", "repository", "address"),
    [
        ("hf_dinov2_classify", "ann/pets", "hf://ann/pets@v1.0"),
        ("timm_dinov2", "timm/vit_tiny.test", "timm/vit_tiny.test"),
        ("open_clip_quickgelu", "ann/clip", "hf://ann/clip"),
    ],
)
def test_a_model_of_the_hub_answers_as_its_folder(serve_hub, name, repository, address):
    more = {"pytorch_model.bin": b"x", "run.py": b"x", "README.md": b"x", "a/config.json": b"{}"}
    files = contents(FAMILIES / name)
    server = serve_hub({**files, **(more if "dino" in name else {})}, repository)
    np.testing.assert_array_equal(answer(address), expected_of(FAMILIES / name))
    asked = [path.rpartition("/")[2] for _, path in server.requests if "/resolve/" in path]
    assert sorted(asked) == sorted(files)  # what is not read is not downloaded
    assert asked[-1].endswith("model.safetensors")  # so that a folder with weights has all


def test_a_file_and_a_folder_of_a_repository_are_read(serve_hub):
    small = {f"small/{name}": content for name, content in contents(DINO).items()}
    serve_hub({**small, "README.md": b"x"})
    for place in ("small", "small/model.safetensors"):
        np.testing.assert_array_equal(answer(f"{ADDRESS}/{place}"), expected_of(DINO))
    with pytest.raises(FileNotFoundError, match=r"hf://ann/pets must hold one of model\.safetens"):
        weights.local_path(ADDRESS)


@pytest.mark.parametrize("how", ["offline", "error"])
def test_the_cache_serves_what_was_downloaded(serve_hub, monkeypatch, how):
    server = serve_hub(contents(DINO))
    weights.local_path(ADDRESS)
    if how == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    else:
        server.status = {"/api/": 503}
    np.testing.assert_array_equal(answer(ADDRESS), expected_of(DINO))
    with pytest.raises(ConnectionError, match="hf://ann/other is not in the cache and cannot be"):
        weights.local_path("hf://ann/other")


@pytest.mark.parametrize(
    ("lies", "message"),
    [
        ({"etag": "0" * 64}, "its hash is .*, but the hub's is 0000"),
        ({"etag": "0" * 40}, "its hash is .*, but the hub's is 0000"),
        ({"sha": "../../up"}, r"the commit of hf://ann/pets. Received: '\.\./\.\./up'"),
        ({"etag": "../../up"}, r"the hash of 'config\.json'. Received: .* hash '\.\./\.\./up'"),
        ({"commit": "../../up"}, r"must name the commit 0123.* Received: commit '\.\./\.\./up'"),
        ({"names": ["../x.bin", "a/../../x.pt", "..\\x.pth", "C:x.pt"]}, "hold one of model.safe"),
    ],
)
def test_a_hub_that_lies_is_refused_and_nothing_stays(serve_hub, tmp_path, lies, message):
    server = serve_hub(contents(DINO))
    server.lies = lies
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        weights.local_path(ADDRESS)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if "up" in path.name or path.parent == tmp_path]
    server.lies = {}
    np.testing.assert_array_equal(answer(ADDRESS), expected_of(DINO))
    path = pathlib.Path(weights.local_path(ADDRESS), "model.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"\0")  # in the cache
    with pytest.raises(ValueError, match=r"is not the file that hf://ann/pets names: its hash is"):
        weights.local_path(ADDRESS)


def test_another_commit_than_the_one_that_is_named_is_refused(serve_hub):
    server = serve_hub(contents(DINO))
    with pytest.raises(ValueError, match=rf"the commit of .*{'f' * 40}\. Received: '{COMMIT}'"):
        weights.local_path(f"{ADDRESS}@{'f' * 40}")
    server.upload(contents(FAMILIES / "timm_dinov2"), "f" * 40)
    np.testing.assert_array_equal(answer(f"{ADDRESS}@{COMMIT}"), expected_of(DINO))
    assert weights.pinned_address(ADDRESS) == f"{ADDRESS}@{'f' * 40}"
    assert weights.pinned_address(f"{ADDRESS}@{COMMIT}") == f"{ADDRESS}@{COMMIT}"


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (404, FileNotFoundError, r"There is no hf://ann/pets on the hub, or it is private"),
        (401, PermissionError, r"requires a token \(the hub answered 401\).*hf auth login"),
        (403, PermissionError, r"accept the license at huggingface\.co/ann/pets"),
        (503, ConnectionError, "is not in the cache and cannot be downloaded: .*503"),
    ],
)
@pytest.mark.parametrize("route", ["/api/models", "/resolve/"])
def test_an_answer_is_told_with_the_remedy(serve_hub, status, error, message, route):
    serve_hub(contents(DINO)).status = {route: status}
    with pytest.raises(error, match=message):
        weights.local_path(ADDRESS)


def test_shards_of_a_hub_are_downloaded_and_used_offline(serve_hub, shards, monkeypatch):
    server = serve_hub({**contents(shards), "model-00001-of-00009.safetensors": b"x"})
    np.testing.assert_array_equal(answer(ADDRESS), expected_of(DINO))
    files = [path.rpartition("/")[2] for _, path in server.requests if "/resolve/" in path]
    assert files[-3:] == [INDEX, FIRST, SECOND]
    assert "model-00001-of-00009.safetensors" not in files  # which the index does not name
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    offline = weights.local_path(ADDRESS)
    assert {INDEX, FIRST, SECOND} < {*os.listdir(offline)}
    assert weights.local_path(f"{ADDRESS}/{INDEX}") == os.path.join(offline, INDEX)


@pytest.mark.parametrize("case", ["shards", "index", "whole"])
def test_an_interrupted_download_is_no_model_and_can_be_repeated(
    serve_hub, shards, monkeypatch, case
):
    address = f"{ADDRESS}/{INDEX}" if case == "index" else ADDRESS
    server = serve_hub(contents(DINO if case == "whole" else shards))
    server.status, server.cut = ({}, 2000) if case == "whole" else ({SECOND: 503}, None)
    for offline, message in ((False, "cannot be downloaded"), (True, "in the cache.*HF_HUB_OFFL")):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        with pytest.raises(ConnectionError, match=f"hf://ann/pets.* {message}"):
            weights.local_path(address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    server.status, server.cut = {}, None
    np.testing.assert_array_equal(answer(address), expected_of(DINO))


def test_what_a_hub_says_of_shards_is_compared(serve_hub, shards):
    server = serve_hub(contents(shards))
    server.lies = {"names": [INDEX, FIRST, "config.json"]}
    with pytest.raises(ValueError, match=rf"lacks shards .*: {SECOND}"):
        weights.local_path(ADDRESS)


def test_addresses_are_told_from_files(tmp_path, monkeypatch):
    for path in ("hf://", "hf://ann", "hf://a/b/../x", "hf://a/b@..", "timm/"):
        with pytest.raises(ValueError, match=r"must be hf://USER/NAME\[@REVISION\]\[/FILE\]"):
            parse_hf(path)
    assert parse_hf("hf://a/b@refs/pr/3/x/y.npz") == HubAddress("a/b", "refs/pr/3", "x/y.npz")
    assert str(parse_hf(f"hf://a/b@{COMMIT}/c")) == f"hf://a/b@{COMMIT}/c"
    monkeypatch.chdir(tmp_path)
    assert is_address("timm/x") and not is_address("runs/x") and not is_address(tmp_path)
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "x").touch()
    assert not is_address("timm/x")
    assert hub.local_path(tmp_path) == str(tmp_path)


HANDLE, NO_SERVER = "keras/vit/keras/tiny", "http://127.0.0.1:9"


@pytest.fixture
def cached(tmp_path, monkeypatch, rng):
    """Version 2 of a preset in the cache, as kagglehub leaves it; and its model."""
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path))
    monkeypatch.setenv("KAGGLE_API_ENDPOINT", NO_SERVER)
    monkeypatch.setenv("no_proxy", "*")
    model = randomize(VisionTransformer(16, 8, 12, 1, 2, 16, 3, gelu="exact"), rng)
    folder = tmp_path / "models" / HANDLE / "2"
    weights.save(model, folder, format="keras_hub")
    shutil.copytree(folder, folder.with_name("3"))  # whose download did not end
    (folder.parent / "2.complete").touch()
    return model


def test_a_preset_in_the_cache_needs_no_network(cached):
    for address in (f"kaggle://{HANDLE}/2", f"kaggle://{HANDLE}"):
        assert_equal_weights(cached, vit_keras.open(address))
    for address in (f"kaggle://{HANDLE}/3", "kaggle://keras/vit/keras/base"):
        with pytest.raises(ConnectionError, match=f"{address} is not in the cache and cannot be"):
            weights.local_path(address)
    with pytest.raises(ValueError, match=r"must be kaggle://OWNER/MODEL/FRAMEWORK/VARIATION"):
        weights.local_path("kaggle://keras/vit/../x")
