"""Downloads from a server on loopback: complete, resumed, cached, from a mirror, and broken."""

import contextlib
import dataclasses
import io
import multiprocessing
import os
import re

import numpy as np
import pytest

from tests.weights.builds import BODY
from tests.weights.builds import PUBLISHED as ROW
from vit_keras.weights import download, fetch, lookup, resolve

pytestmark = pytest.mark.once

HALF = len(BODY) // 2
FORK = multiprocessing.get_context("fork")


def refused(kind, message, target, row=ROW, **options):
    """Nothing stays of what is not the file."""
    with pytest.raises(kind, match=message):
        fetch(row, **options)
    assert os.listdir(target.parent) == []


def test_file_arrives_whole_with_progress_and_stays(serve, target, capsys):
    server = serve()
    assert resolve("B/16", "imagenet21k") == str(target)
    assert target.read_bytes() == BODY and os.listdir(target.parent) == [target.name]
    printed = capsys.readouterr().out
    assert f"Downloading {server.url}/vit_models/imagenet21k/ViT-B_16.npz" in printed
    assert f"{len(BODY)}/{len(BODY)}" in printed
    with np.load(fetch(ROW), allow_pickle=False) as file:
        assert "head/kernel" in file.files
    target.with_name(f".partial-{target.name}.lock").touch()  # left by a kill after the renaming
    assert fetch(ROW) == str(target) and os.listdir(target.parent) == [target.name]
    assert len(server.requests) == 1


PLUS = "/vit_models/imagenet21k%2Bimagenet2012/R50%2BViT-B_16.npz"


def test_a_mirror_has_a_folder_and_names_are_escaped(serve, monkeypatch):
    row = lookup("R50+B/16", "imagenet-384")
    server = serve(files={PLUS: BODY, "/weights/" + ROW.path: BODY})
    assert fetch(row).endswith(os.path.join("imagenet21k+imagenet2012", "R50+ViT-B_16.npz"))
    monkeypatch.setenv(download.MIRROR, f"{server.url}/weights/")
    fetch(ROW)
    assert server.requests == [(PLUS, None), ("/weights/" + ROW.path, None)]


@pytest.mark.parametrize("fault", ["cut", "stall"])
def test_a_body_that_ends_is_resumed_by_range(serve, target, fault):
    server = serve((fault, HALF))
    fetch(ROW, timeout=0.2)
    assert target.read_bytes() == BODY
    assert server.requests[1:] == [("/" + ROW.path, f"bytes={HALF}-")]


@pytest.mark.parametrize("options", [{"ranges": False}, {"etag": ""}])
def test_truncated_body_arrives_from_any_server(serve, target, options):
    server = serve(("cut", HALF), 416, 503, ("cut", HALF // 2), 429, **options)
    fetch(ROW, retries=5)
    assert target.read_bytes() == BODY
    assert len(server.requests) == 6


def spoiled():
    """The file with a NaN, whose checksums are right."""
    arrays = dict(np.load(io.BytesIO(BODY)))
    arrays["head/bias"] = np.full_like(arrays["head/bias"], np.nan)
    np.savez(file := io.BytesIO(), **arrays)
    return file.getvalue()


PAGE = b"<html>Please log in</html>"
SIZED = dataclasses.replace(ROW, size_mib=len(BODY) / 2**20)


@pytest.mark.parametrize(
    ("body", "row", "options", "message"),
    [
        (PAGE, SIZED, {}, r"the published file has 0\.18\d+ MiB"),
        (PAGE, ROW, {}, "is a web page. Download"),
        (BODY[:HALF] + b"\1" + BODY[HALF + 1 :], ROW, {}, "not the published file: .*Bad CRC-32"),
        (spoiled(), ROW, {}, "not the published file: .*finite numbers.*head/bias"),
    ],
)
def test_what_is_not_the_published_file_is_refused(serve, target, body, row, options, message):
    serve(files={"/" + ROW.path: body}, **options)
    refused(ValueError, message, target, row)


def test_body_that_stays_truncated_is_an_error(serve, target):
    server = serve(("cut", 100), ("cut", 100))
    message = rf"the body ended at 200 of {len(BODY)} bytes, 2 attempts"
    refused(ConnectionError, message, target, retries=1)
    assert server.requests[-1][1] == "bytes=100-"


def test_bytes_of_another_range_are_refused(serve, target):
    """A whole archive after the bytes that had come would still open."""
    serve(("cut", HALF)).early = HALF
    refused(ConnectionError, f"the range does not begin at {HALF}, 4 attempts", target)


def test_a_cached_file_of_another_size_is_refused_and_stays(serve, target):
    serve()
    fetch(SIZED)
    target.write_bytes(PAGE)
    with pytest.raises(ValueError, match="ViT-B_16.npz' has .* MiB, but .* Remove it"):
        fetch(SIZED)
    assert target.read_bytes() == PAGE


@pytest.mark.parametrize(
    ("status", "kind", "requests"),
    [(404, FileNotFoundError, 1), (403, ConnectionError, 1), (503, ConnectionError, 3)],
)
def test_refusal_names_url_file_and_remedy(serve, target, monkeypatch, status, kind, requests):
    server = serve(*[status] * requests)
    url = f"{server.url}/vit_models/imagenet21k/ViT-B_16.npz"
    message = (
        f"^{re.escape(url)} cannot be downloaded: the server answered {status}.*"
        f"VIT_KERAS_MIRROR.*{re.escape(repr(str(target)))}, where it will be used"
    )
    refused(kind, message, target, retries=2)
    assert len(server.requests) == requests
    monkeypatch.setenv(download.MIRROR, "http://127.0.0.1:1")  # nothing listens on this port
    refused(ConnectionError, "refused.*4 attempts", target)


@pytest.mark.parametrize("length", [False, True])
def test_a_body_without_end_is_given_up(serve, target, monkeypatch, length):
    serve(length=length)
    fetch(ROW)
    target.unlink()
    monkeypatch.setattr(download, "LARGEST_BYTES", len(BODY) - 1)
    refused(ValueError, f"more than {len(BODY) - 1} bytes.*Nothing was kept", target)
    half = dataclasses.replace(SIZED, size_mib=SIZED.size_mib / 2)
    refused(ValueError, f"more than {int(HALF * 1.02)} bytes.*Nothing was kept", target, half)


def test_two_processes_at_once_download_once(serve, target, tmp_path):
    server = serve(("stall", HALF))

    def run(name):
        with open(tmp_path / name, "w", buffering=1) as file, contextlib.redirect_stdout(file):
            print("at", fetch(ROW, timeout=600))

    first, second = (FORK.Process(target=run, args=(n,), daemon=True) for n in ("first", "second"))
    first.start()
    assert server.asked.wait(timeout=120)  # it holds the lock and has half of the file
    second.start()
    second.join(1)
    assert second.is_alive() and not target.exists()  # no partial file has the file's name
    server.release.set()
    for process in (first, second):
        process.join(120)
        assert process.exitcode == 0
    assert all(f"at {target}" in (tmp_path / n).read_text() for n in ("first", "second"))
    assert server.requests == [("/" + ROW.path, None)]
    assert target.read_bytes() == BODY and os.listdir(target.parent) == [target.name]
