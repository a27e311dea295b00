"""Faults of downloads from a real server on loopback, and their messages."""

import dataclasses
import hashlib
import io
import re

import numpy as np
import pytest

from tests.weights.server import BODY, ROW, beside
from vit_keras.weights import fetch, from_checkpoint
from vit_keras.weights.published import download, integrity

pytestmark = pytest.mark.once

HASH = hashlib.sha256(BODY).hexdigest()


def test_body_that_stays_truncated_is_an_error_and_kept_for_later(serve, target):
    server = serve(("cut", 100), ("cut", 100))
    message = rf"the body ended at 200 of {len(BODY)} bytes, 2 attempts"
    with pytest.raises(ConnectionError, match=message):
        fetch(ROW, retries=1)
    assert beside(target) == {".part", ".part.json"}
    fetch(ROW)
    assert server.requests[-1][1] == "bytes=200-"
    assert target.read_bytes() == BODY


def test_connection_that_stays_stalled_is_an_error(serve, monkeypatch, target):
    serve(*[("stall", 10)] * 2)
    monkeypatch.setenv(download.TIMEOUT, "0.2")
    message = r"stalled: no byte in 0\.2 s, 2 attempts\. .*put the file at"
    with pytest.raises(ConnectionError, match=message):
        fetch(ROW, retries=1)
    assert not target.exists()


def test_wrong_hash_removes_the_part_and_names_both(serve, target):
    server = serve()
    row = dataclasses.replace(ROW, sha256="0" * 64)
    with pytest.raises(ValueError, match=f"{server.url}.*SHA-256 {HASH}.*table.*says {'0' * 64}"):
        fetch(row)
    assert beside(target) == set()


def test_right_hash_of_the_table_needs_no_record(serve, target):
    serve()
    fetch(dataclasses.replace(ROW, sha256=HASH))
    assert beside(target) == {""}


def test_recorded_hash_is_enforced_on_the_cached_file(serve, target):
    serve()
    fetch(ROW)
    other = BODY[:-1] + b"\1"
    target.write_bytes(other)
    digest = hashlib.sha256(other).hexdigest()
    message = f"it has SHA-256 {digest}.*first download says {HASH}.*Remove it"
    with pytest.raises(ValueError, match=message):
        fetch(ROW)
    assert target.read_bytes() == other


def test_recorded_hash_is_enforced_on_the_next_download(serve, target):
    serve()
    fetch(ROW)
    target.unlink()
    other = BODY[:-1] + b"\1"
    serve(files={"/" + ROW.path: other})
    with pytest.raises(ValueError, match=rf"says {HASH}.*ViT-B_16\.npz\.sha256' is out of date"):
        fetch(ROW)
    assert beside(target) == {".sha256"}


def test_a_download_is_compared_with_its_record_where_it_is_loaded_by_its_path(serve, target):
    serve()
    path = fetch(ROW)
    integrity._CHECKED.clear()  # as in another process
    from_checkpoint(path, num_heads=3)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(path, **{**arrays, "cls": arrays["cls"] + 1})  # a whole file, and another one
    with pytest.raises(ValueError, match="ViT-B_16.npz' is not the file that was downloaded"):
        from_checkpoint(path, num_heads=3)
    target.with_name(target.name + ".sha256").unlink()
    from_checkpoint(path, num_heads=3)  # any file


def test_malformed_record_is_named(serve, target):
    serve()
    fetch(ROW)
    target.with_name(target.name + ".sha256").write_text("<html>")
    with pytest.raises(ValueError, match=r"64 hexadecimal digits. Received: '<html>'"):
        fetch(ROW)


@pytest.mark.parametrize("size_mib", [len(BODY) / 2**20, None])
def test_page_of_a_proxy_is_refused(serve, target, size_mib):
    page = b"<html>Please log in</html>"
    serve(files={"/" + ROW.path: page})
    fault = r"the published file has 0\.18\d+ MiB" if size_mib else r"is no complete \.npz archive"
    with pytest.raises(ValueError, match=fault):
        fetch(dataclasses.replace(ROW, size_mib=size_mib))
    assert beside(target) == set()


def test_published_size_is_matched_as_rounded(serve, target):
    serve()
    assert fetch(dataclasses.replace(ROW, size_mib=len(BODY) / 2**20 * 1.015)) == str(target)


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
    message = f"no connection.*refused.*4 attempts.*{re.escape(repr(str(target)))}, where it will"
    with pytest.raises(ConnectionError, match=message):
        fetch(ROW)
    assert server.requests == []


def test_cache_that_cannot_be_written_is_named(serve, monkeypatch, tmp_path):
    serve()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "file"))
    with pytest.raises(PermissionError, match=r"cache cannot be written.*Set KERAS_HOME"):
        fetch(ROW)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (download.MIRROR, "ftp://example.org", "VIT_KERAS_MIRROR must be an http.*'ftp://exa"),
        (download.TIMEOUT, "soon", "VIT_KERAS_TIMEOUT must be a positive number.*'soon'"),
        (download.TIMEOUT, "-1", "VIT_KERAS_TIMEOUT must be a positive number.*'-1'"),
    ],
)
def test_wrong_variables_are_named(serve, monkeypatch, variable, value, message):
    serve()
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=message):
        fetch(ROW)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"timeout": 0}, "`timeout` must be a positive number of seconds. Received: 0"),
        ({"timeout": float("nan")}, "`timeout` must be a positive number.*nan"),
        ({"retries": -1}, "`retries` must be 0 or more. Received: retries=-1"),
    ],
)
def test_wrong_arguments_are_named(serve, arguments, message):
    serve()
    with pytest.raises(ValueError, match=message):
        fetch(ROW, **arguments)


def test_a_body_without_end_is_given_up(serve, target, monkeypatch):
    monkeypatch.setattr(integrity, "LARGEST_BYTES", len(BODY) - 1)
    row = dataclasses.replace(ROW, size_mib=None)
    for length in (False, True):
        serve(length=length)
        message = f"has more than {len(BODY) - 1} bytes.*Nothing was kept"
        with pytest.raises(ValueError, match=message):
            fetch(row)
        assert beside(target) == set()
    size = len(BODY) / 2**20
    assert integrity.largest(dataclasses.replace(ROW, size_mib=size)) == int(len(BODY) * 1.02)


@pytest.mark.parametrize("damage", ["checksum", "infinite"])
def test_a_first_download_is_read_through_before_it_is_recorded(serve, target, damage):
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
