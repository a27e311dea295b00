"""Faults of downloads from a real server on loopback, and their messages."""

import contextlib
import dataclasses
import hashlib
import io
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers import ROOT
from tests.weights.server import BODY, ROW, beside
from vit_keras.weights import download, fetch

pytestmark = pytest.mark.once

HASH = hashlib.sha256(BODY).hexdigest()


def test_body_that_stays_truncated_is_an_error(serve, target):
    server = serve(("cut", 100), ("cut", 100))
    message = rf"the body ended at 200 of {len(BODY)} bytes, 2 attempts"
    with pytest.raises(ConnectionError, match=message):
        fetch(ROW, retries=1)
    assert server.requests[-1][1] == "bytes=100-"
    assert beside(target) == set()


def test_wrong_hash_removes_the_part_and_names_both(serve, target):
    server = serve()
    row = dataclasses.replace(ROW, sha256="0" * 64)
    with pytest.raises(ValueError, match=f"{server.url}.*SHA-256 {HASH}.*table.*says {'0' * 64}"):
        fetch(row)
    assert beside(target) == set()


def test_hash_of_the_table_is_enforced_on_the_cached_file(serve, target):
    serve()
    row = dataclasses.replace(ROW, sha256=HASH)
    fetch(row)
    other = BODY[:-1] + b"\1"
    target.write_bytes(other)
    with pytest.raises(ValueError, match=f"it has SHA-256 .*table.*says {HASH}.*Remove it"):
        fetch(row)
    assert target.read_bytes() == other


@pytest.mark.parametrize("size_mib", [len(BODY) / 2**20, None])
def test_page_of_a_proxy_is_refused(serve, target, size_mib):
    page = b"<html>Please log in</html>"
    serve(files={"/" + ROW.path: page})
    fault = r"the published file has 0\.18\d+ MiB" if size_mib else r"is not a NumPy archive"
    with pytest.raises(ValueError, match=fault):
        fetch(dataclasses.replace(ROW, size_mib=size_mib))
    assert beside(target) == set()


@pytest.mark.parametrize(
    ("status", "kind", "requests"),
    [(404, FileNotFoundError, 1), (410, FileNotFoundError, 1), (403, ConnectionError, 1)]
    + [(503, ConnectionError, 3)],
)
def test_refusal_names_url_file_and_remedy(serve, target, status, kind, requests):
    server = serve(*[status] * requests)
    url = f"{server.url}/vit_models/imagenet21k/ViT-B_16.npz"
    message = (
        f"^{re.escape(url)} cannot be downloaded: the server answered {status}.*"
        f"VIT_KERAS_MIRROR.*{re.escape(repr(str(target)))}, where it will be used"
    )
    with pytest.raises(kind, match=message):
        fetch(ROW, retries=2)
    assert len(server.requests) == requests


def test_download_from_an_overloaded_server_is_tried_again(serve, target):
    server = serve(503, 429)
    fetch(ROW)
    assert len(server.requests) == 3


def test_no_network_names_where_to_put_the_file(serve, monkeypatch, target):
    server = serve()
    monkeypatch.setenv(download.MIRROR, "http://127.0.0.1:1")  # nothing listens on this port
    message = f"refused.*4 attempts.*{re.escape(repr(str(target)))}, where it will"
    with pytest.raises(ConnectionError, match=message):
        fetch(ROW)
    assert server.requests == []


def test_a_body_without_end_is_given_up(serve, target, monkeypatch):
    monkeypatch.setattr(download, "LARGEST_BYTES", len(BODY) - 1)
    row = dataclasses.replace(ROW, size_mib=None)
    for length in (False, True):
        serve(length=length)
        message = f"has more than {len(BODY) - 1} bytes.*Nothing was kept"
        with pytest.raises(ValueError, match=message):
            fetch(row)
        assert beside(target) == set()
    size = len(BODY) / 2**20
    assert download.largest(dataclasses.replace(ROW, size_mib=size)) == int(len(BODY) * 1.02)


@pytest.mark.parametrize("damage", ["checksum", "infinite"])
def test_a_download_is_read_through(serve, target, damage):
    if damage == "checksum":
        body = bytearray(BODY)
        body[len(body) // 2] ^= 1
    else:
        with np.load(io.BytesIO(BODY)) as file:
            arrays = dict(file)
        arrays["head/bias"] = np.full_like(arrays["head/bias"], np.nan)
        spoiled = io.BytesIO()
        np.savez(spoiled, **arrays)
        body = spoiled.getvalue()
    serve(files={"/" + ROW.path: bytes(body)})
    message = {"checksum": "Bad CRC-32", "infinite": "finite numbers.*head/bias"}
    with pytest.raises(ValueError, match=f"what arrived is damaged.*{message[damage]}"):
        fetch(dataclasses.replace(ROW, size_mib=None))
    assert beside(target) == set()


FETCH = "from vit_keras.weights import resolve; print('at', resolve('B/16', 'imagenet21k'))"
HALF = len(BODY) // 2


@pytest.fixture
def start():
    """Starts processes that download the file, and ends them after the test."""
    with contextlib.ExitStack() as stack:

        def run():
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
            environment |= {"VIT_KERAS_TIMEOUT": "600", "KERAS_BACKEND": "jax"}  # starts soonest
            process = subprocess.Popen(
                [sys.executable, "-c", FETCH],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield run


def read_until(process, text):
    """Reads what the process prints up to the line with `text`."""
    printed = ""
    for line in process.stdout:
        printed += line
        if text in line:
            return printed
    raise AssertionError(f"{text!r} was not printed:\n{printed}")


def test_two_processes_at_once_download_once(serve, start, target):
    server = serve(("stall", HALF))
    first = start()
    assert server.asked.wait(timeout=120)  # it holds the lock and has half of the file
    second = start()
    read_until(second, "Waiting for the process that downloads")
    assert not target.exists()  # no partial file has the file's name
    server.release.set()
    for process in (first, second):
        read_until(process, f"at {target}")
        assert process.wait(timeout=120) == 0
    assert server.requests == [("/" + ROW.path, None)]
    assert target.read_bytes() == BODY
    assert beside(target) == {""}
