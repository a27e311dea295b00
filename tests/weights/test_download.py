"""Downloads from a server on loopback: complete, resumed, cached, from a mirror, and broken."""

import contextlib
import dataclasses
import hashlib
import io
import multiprocessing
import os
import re

import numpy as np
import pytest

from tests.weights.server import BODY, ROW, beside
from vit_keras.weights import download, fetch, lookup, resolve

pytestmark = pytest.mark.once

HALF = len(BODY) // 2
HASH = hashlib.sha256(BODY).hexdigest()
UNSIZED = dataclasses.replace(ROW, size_mib=None)
FORK = multiprocessing.get_context("fork")


def refused(kind, message, target, row=ROW, **options):
    """Nothing stays of what is not the file."""
    with pytest.raises(kind, match=message):
        fetch(row, **options)
    assert beside(target) == set()


def test_file_arrives_whole_with_progress_and_stays(serve, target, capsys):
    server = serve()
    assert resolve("B/16", "imagenet21k") == str(target)
    assert target.read_bytes() == BODY and beside(target) == {""}
    printed = capsys.readouterr().out
    assert f"Downloading {server.url}/vit_models/imagenet21k/ViT-B_16.npz" in printed
    assert f"{len(BODY)}/{len(BODY)}" in printed
    with np.load(fetch(ROW), allow_pickle=False) as file:
        assert "head/kernel" in file.files
    assert len(server.requests) == 1


def test_file_put_by_hand_is_used(serve, target):
    server = serve()
    target.parent.mkdir(parents=True)
    target.write_bytes(BODY)
    assert fetch(ROW) == str(target)
    assert server.requests == []


def test_mirror_may_have_a_folder_and_a_slash(serve, monkeypatch):
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


@pytest.mark.parametrize("fault", ["cut", "stall"])
def test_a_body_that_ends_is_resumed_by_range(serve, target, fault):
    server = serve((fault, HALF))
    fetch(ROW, timeout=0.2)
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
    refused(ValueError, r"what arrived is damaged .* is not a NumPy archive", target)


def test_body_that_stays_truncated_is_an_error(serve, target):
    server = serve(("cut", 100), ("cut", 100))
    message = rf"the body ended at 200 of {len(BODY)} bytes, 2 attempts"
    refused(ConnectionError, message, target, retries=1)
    assert server.requests[-1][1] == "bytes=100-"


def test_hash_of_the_table_is_enforced_on_what_arrives_and_on_the_cached_file(serve, target):
    server = serve()
    row = dataclasses.replace(ROW, sha256="0" * 64)
    message = f"{server.url}.*SHA-256 {HASH}.*table.*says {'0' * 64}"
    refused(ValueError, message, target, row)
    row = dataclasses.replace(ROW, sha256=HASH)
    fetch(row)
    target.write_bytes(other := BODY[:-1] + b"\1")
    with pytest.raises(ValueError, match=f"it has SHA-256 .*table.*says {HASH}.*Remove it"):
        fetch(row)
    assert target.read_bytes() == other


@pytest.mark.parametrize("size_mib", [len(BODY) / 2**20, None])
def test_page_of_a_proxy_is_refused(serve, target, size_mib):
    serve(files={"/" + ROW.path: b"<html>Please log in</html>"})
    fault = r"the published file has 0\.18\d+ MiB" if size_mib else "is a web page. Download"
    refused(ValueError, fault, target, dataclasses.replace(ROW, size_mib=size_mib))


@pytest.mark.parametrize(
    ("status", "kind", "requests"),
    [(404, FileNotFoundError, 1), (403, ConnectionError, 1), (503, ConnectionError, 3)],
)
def test_refusal_names_url_file_and_remedy(serve, target, status, kind, requests):
    server = serve(*[status] * requests)
    url = f"{server.url}/vit_models/imagenet21k/ViT-B_16.npz"
    message = (
        f"^{re.escape(url)} cannot be downloaded: the server answered {status}.*"
        f"VIT_KERAS_MIRROR.*{re.escape(repr(str(target)))}, where it will be used"
    )
    refused(kind, message, target, retries=2)
    assert len(server.requests) == requests


def test_download_from_an_overloaded_server_is_tried_again(serve):
    server = serve(503, 429)
    fetch(ROW)
    assert len(server.requests) == 3


def test_no_network_is_told(serve, monkeypatch, target):
    serve()
    monkeypatch.setenv(download.MIRROR, "http://127.0.0.1:1")  # nothing listens on this port
    refused(ConnectionError, "refused.*4 attempts", target)


@pytest.mark.parametrize("length", [False, True])
def test_a_body_without_end_is_given_up(serve, target, monkeypatch, length):
    monkeypatch.setattr(download, "LARGEST_BYTES", len(BODY) - 1)
    serve(length=length)
    refused(ValueError, f"more than {len(BODY) - 1} bytes.*Nothing was kept", target, UNSIZED)
    row = dataclasses.replace(ROW, size_mib=len(BODY) / 2**20)
    assert download.largest(row) == int(len(BODY) * 1.02)


@pytest.mark.parametrize("damage", ["Bad CRC-32", "finite numbers.*head/bias"])
def test_a_download_is_read_through(serve, target, damage):
    body = bytearray(BODY)
    body[len(body) // 2] ^= 1
    if damage.startswith("finite"):
        arrays = dict(np.load(io.BytesIO(BODY)))
        arrays["head/bias"] = np.full_like(arrays["head/bias"], np.nan)
        np.savez(spoiled := io.BytesIO(), **arrays)
        body = spoiled.getvalue()
    serve(files={"/" + ROW.path: bytes(body)})
    refused(ValueError, f"what arrived is damaged.*{damage}", target, UNSIZED)


def test_two_processes_at_once_download_once(serve, target, tmp_path):
    server = serve(("stall", HALF))

    def run(name):
        with open(tmp_path / name, "w", buffering=1) as file, contextlib.redirect_stdout(file):
            print("at", fetch(ROW, timeout=600))

    processes = [FORK.Process(target=run, args=(name,)) for name in ("first", "second")]
    try:
        processes[0].start()
        assert server.asked.wait(timeout=120)  # it holds the lock and has half of the file
        processes[1].start()
        while "Waiting for the process that downloads" not in read(tmp_path / "second"):
            processes[1].join(0.05)
            assert processes[1].is_alive()
        assert not target.exists()  # no partial file has the file's name
        server.release.set()
        for process in processes:
            process.join(120)
            assert process.exitcode == 0
    finally:
        for process in processes:
            process.kill()
    assert f"at {target}" in read(tmp_path / "first") and f"at {target}" in read(
        tmp_path / "second"
    )
    assert server.requests == [("/" + ROW.path, None)]
    assert target.read_bytes() == BODY and beside(target) == {""}


def read(path):
    return path.read_text() if path.exists() else ""
