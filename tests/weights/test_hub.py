"""Models of the Hugging Face hub, from a server of its routes on loopback, and from its cache."""

import os
import pathlib

import numpy as np
import pytest
from huggingface_hub import constants

import vit_keras
from tests.helpers import GOLDEN, to_numpy
from tests.weights.hub_server import COMMIT
from vit_keras import weights
from vit_keras.support.files import HubAddress, is_address, parse_hf
from vit_keras.weights import hub

pytestmark = pytest.mark.on("torch")

FAMILIES = GOLDEN / "families"
DINO = FAMILIES / "hf_dinov2_classify"
ADDRESS = "hf://ann/pets"


def contents(folder):
    """The files of a golden folder, without its inputs and outputs."""
    return {f.name: f.read_bytes() for f in folder.iterdir() if f.name != "io.npz"}


def answer(path, **options):
    model = vit_keras.open(path, **options)
    shape = (1, *model.input_shape[1:])
    return to_numpy(model(np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")))


@pytest.mark.parametrize(
    ("name", "repository", "address", "options"),
    [
        ("hf_dinov2_classify", "ann/pets", "hf://ann/pets@v1.0", {}),
        ("timm_dinov2", "timm/vit_tiny.test", "timm/vit_tiny.test", {}),
        ("open_clip_quickgelu", "ann/clip", "hf://ann/clip", {}),
    ],
)
def test_a_model_of_the_hub_answers_as_its_folder(serve_hub, name, repository, address, options):
    serve_hub({**contents(FAMILIES / name), "run.py": b"raise SystemExit"}, repository)
    np.testing.assert_array_equal(answer(address, **options), answer(FAMILIES / name, **options))


def test_what_is_not_read_is_not_downloaded(serve_hub):
    more = {"pytorch_model.bin": b"x", "run.py": b"x", "README.md": b"x", "a/config.json": b"{}"}
    server = serve_hub({**contents(DINO), **more})
    folder = weights.local_path(ADDRESS)
    assert sorted(os.listdir(folder)) == sorted(contents(DINO))
    files = [path.rpartition("/")[2] for _, path in server.requests if "/resolve/" in path]
    assert files[-1] == "model.safetensors"  # so that a folder with weights has all


def test_a_file_and_a_folder_of_a_repository_are_read(serve_hub):
    small = {f"small/{name}": content for name, content in contents(DINO).items()}
    serve_hub({**small, "README.md": b"x"})
    expected = answer(DINO)
    np.testing.assert_array_equal(answer(f"{ADDRESS}/small"), expected)
    np.testing.assert_array_equal(answer(f"{ADDRESS}/small/model.safetensors"), expected)
    with pytest.raises(FileNotFoundError, match=r"hf://ann/pets must hold model\.safetensors"):
        weights.local_path(ADDRESS)


@pytest.mark.parametrize("how", ["offline", "no server", "error"])
def test_the_cache_serves_what_was_downloaded(serve_hub, monkeypatch, how):
    server = serve_hub(contents(DINO))
    expected = answer(ADDRESS)
    if how == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    elif how == "no server":
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    else:
        server.status = {"/api/": 503}
    np.testing.assert_array_equal(answer(ADDRESS), expected)
    with pytest.raises(ConnectionError, match="hf://ann/other is not in the cache and cannot be"):
        weights.local_path("hf://ann/other")


def test_a_file_that_changed_in_the_cache_is_refused(serve_hub):
    serve_hub(contents(DINO))
    path = pathlib.Path(weights.local_path(ADDRESS), "model.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"is not the file that hf://ann/pets names: its hash is"):
        weights.local_path(ADDRESS)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_wrong_hash_is_refused_and_nothing_stays(serve_hub, name):
    server = serve_hub(contents(DINO))
    server.lies = {"etag": ("0" * 64 if name.endswith("s") else "0" * 40)}
    with pytest.raises(ValueError, match="its hash is .*, and the hub's is 0000"):
        weights.local_path(ADDRESS)
    server.lies = {}
    np.testing.assert_array_equal(answer(ADDRESS), answer(DINO))


@pytest.mark.parametrize(
    ("lies", "message"),
    [
        ({"sha": "../../../up"}, r"must be a commit of 40 digits\. Received: '\.\./"),
        ({"etag": "../../up"}, r"the hash of 'config\.json'. Received: .* hash '\.\./\.\./up'"),
        ({"commit": "../../up"}, r"must name the commit 0123.* Received: commit '\.\./\.\./up'"),
        ({"names": ["../x.bin", "a/../../x.pt", "..\\x.pth", "C:x.pt"]}, "must hold model.safe"),
    ],
)
def test_a_hostile_hub_writes_nothing_outside(serve_hub, tmp_path, lies, message):
    serve_hub(contents(DINO)).lies = lies
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        weights.local_path(ADDRESS)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if "up" in path.name or path.parent == tmp_path]


def test_another_commit_than_the_one_that_is_named_is_refused(serve_hub):
    server = serve_hub(contents(DINO))
    with pytest.raises(ValueError, match=rf"{'f' * 40} must be that commit\. Received: '{COMMIT}'"):
        weights.local_path(f"{ADDRESS}@{'f' * 40}")
    server.upload(contents(FAMILIES / "timm_dinov2"), "f" * 40)
    np.testing.assert_array_equal(answer(f"{ADDRESS}@{COMMIT}"), answer(DINO))
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


def test_an_interrupted_download_is_no_model_and_can_be_repeated(serve_hub, monkeypatch):
    server = serve_hub(contents(DINO))
    server.cut = 2000  # the configurations arrive, the weights do not
    with pytest.raises(ConnectionError, match="hf://ann/pets .* cannot be downloaded"):
        weights.local_path(ADDRESS)
    with monkeypatch.context() as offline:
        offline.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(ConnectionError, match="HF_HUB_OFFLINE"):
            weights.local_path(ADDRESS)
    server.cut = None
    np.testing.assert_array_equal(answer(ADDRESS), answer(DINO))


@pytest.mark.parametrize(
    "path",
    [
        "hf://",
        "hf://ann",
        "hf://ann/pets/../x",
        "hf://../x",
        "hf://a/b@..",
        "hf://a/b/c\\d",
        "timm/",
    ],
)
def test_an_address_of_another_form_is_refused(path):
    with pytest.raises(ValueError, match=r"must be hf://USER/NAME\[@REVISION\]\[/FILE\]"):
        parse_hf(path)


def test_addresses_are_told_from_files(tmp_path, monkeypatch):
    assert parse_hf("hf://a/b@refs/pr/3/x/y.npz") == HubAddress("a/b", "refs/pr/3", "x/y.npz")
    assert str(parse_hf(f"hf://a/b@{COMMIT}/c")) == f"hf://a/b@{COMMIT}/c"
    monkeypatch.chdir(tmp_path)
    assert is_address("timm/x") and not is_address("runs/x") and not is_address(tmp_path)
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "x").touch()
    assert not is_address("timm/x")
    assert hub.local_path(tmp_path) == str(tmp_path)
