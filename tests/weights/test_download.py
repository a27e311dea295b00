"""Downloads from a real server on loopback: complete, resumed, cached, from a mirror."""

import os

import numpy as np
import pytest

from tests.weights.server import BODY, ROW, beside
from vit_keras.weights import download, fetch, lookup, resolve

pytestmark = pytest.mark.once

HALF = len(BODY) // 2


def test_file_arrives_whole_with_progress(serve, target, capsys):
    server = serve()
    assert resolve("B/16", "imagenet21k") == str(target)
    assert target.read_bytes() == BODY
    with np.load(target, allow_pickle=False) as file:
        assert "head/kernel" in file.files
    assert beside(target) == {""}
    printed = capsys.readouterr().out
    assert f"Downloading {server.url}/vit_models/imagenet21k/ViT-B_16.npz" in printed
    assert f"{len(BODY)}/{len(BODY)}" in printed


def test_cached_file_needs_no_network(serve, target):
    server = serve()
    fetch(ROW)
    with np.load(fetch(ROW)) as file:
        assert "cls" in file.files
    assert len(server.requests) == 1


def test_file_put_by_hand_is_used(serve, target):
    server = serve()
    target.parent.mkdir(parents=True)
    target.write_bytes(BODY)
    assert fetch(ROW) == str(target)
    assert server.requests == []


def test_mirror_may_have_a_folder_and_a_slash(serve, monkeypatch, target):
    server = serve()
    monkeypatch.setenv(download.MIRROR, f"{server.url}/weights/")
    fetch(ROW)
    assert server.requests == [("/weights/" + ROW.path, None)]


def test_plus_in_a_name_is_escaped(serve):
    row = lookup("R50+B/16", "imagenet-384")
    path = "/vit_models/imagenet21k%2Bimagenet2012/R50%2BViT-B_16.npz"
    server = serve(files={path: BODY})
    assert fetch(row).endswith(os.path.join("imagenet21k+imagenet2012", "R50+ViT-B_16.npz"))
    assert server.requests == [(path, None)]


def test_truncated_body_is_resumed_by_range(serve, target):
    server = serve(("cut", HALF))
    fetch(ROW)
    assert target.read_bytes() == BODY
    assert [wanted for _, wanted in server.requests] == [None, f"bytes={HALF}-"]
    assert beside(target) == {""}


@pytest.mark.parametrize("options", [{"ranges": False}, {"etag": ""}, {"etag": 'W/"weak"'}])
def test_truncated_body_arrives_from_any_server(serve, target, options):
    server = serve(("cut", HALF), ("cut", HALF // 2), **options)
    fetch(ROW)
    assert target.read_bytes() == BODY
    assert len(server.requests) == 3


def test_body_without_a_length_is_checked_by_its_form(serve, target):
    serve(length=False)
    fetch(ROW)
    target.unlink()
    serve(("cut", HALF), length=False)
    with pytest.raises(ValueError, match=r"what arrived is damaged .* is not a NumPy archive"):
        fetch(ROW)
    assert beside(target) == set()


def test_stalled_connection_is_resumed(serve, target):
    server = serve(("stall", HALF))
    fetch(ROW, timeout=0.2)
    assert target.read_bytes() == BODY
    assert [wanted for _, wanted in server.requests] == [None, f"bytes={HALF}-"]
