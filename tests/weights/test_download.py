"""Downloads from a real server on loopback: complete, resumed, cached, from a mirror."""

import os
import pathlib

import keras
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


def test_progress_is_not_printed_if_keras_logs_nothing(serve, capsys):
    serve()
    keras.config.disable_interactive_logging()
    try:
        fetch(ROW)
    finally:
        keras.config.enable_interactive_logging()
    assert capsys.readouterr().out == ""


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


def test_cache_can_be_another_folder(serve, tmp_path):
    serve()
    path = fetch(ROW, cache_dir=tmp_path / "elsewhere")
    assert path == str(tmp_path / "elsewhere" / "models" / "vit_keras" / ROW.path)


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


@pytest.mark.parametrize("length", [100, len(BODY), len(BODY) + 1])
def test_part_of_another_version_is_not_continued(serve, target, length):
    """`If-Range` makes the server send a changed file."""
    serve(etag='"v2"')
    target.parent.mkdir(parents=True)
    target.with_name(target.name + ".part").write_bytes(b"x" * length)
    target.with_name(target.name + ".part.tag").write_text('"v1"')
    fetch(ROW)
    assert target.read_bytes() == BODY


def test_part_longer_than_the_server_file_is_downloaded_again(serve, target):
    serve()
    target.parent.mkdir(parents=True)
    target.with_name(target.name + ".part").write_bytes(b"x" * (len(BODY) + 1))
    target.with_name(target.name + ".part.tag").write_text('"v1"')
    fetch(ROW)
    assert target.read_bytes() == BODY


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


def test_default_cache_is_the_cache_of_keras(monkeypatch):
    monkeypatch.delenv("KERAS_HOME", raising=False)
    expected = pathlib.Path.home() / ".keras" / "models" / "vit_keras" / ROW.path
    assert download.cached_path(ROW) == str(expected)


def test_read_only_cache_serves_what_it_has(serve, target, monkeypatch):
    """No lock can be written to a shared cache."""
    serve()
    fetch(ROW)
    monkeypatch.delattr(download, "exclusive_lock")
    assert fetch(ROW) == str(target)
