"""Requests that no browser sends: the demo's server answers them in few words, and stays up."""

import os
import re
import socket

import hypothesis
import pytest
from hypothesis import strategies as st

from demo import serve
from tests.demo_server import SECRET, running, write_page

pytestmark = pytest.mark.once
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
TIMES = int(os.environ.get("FUZZ_TIMES", 1))  # as many requests by hand
SETTINGS = {"deadline": None, "database": None, "derandomize": True}
EXPECTED = {200, 206, 304, 400, 404, 405, 408, 411, 413, 414, 416, 421, 431, 501, 505}


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    """A server of a small page and export, in folders beside which a secret lies."""
    page, export = write_page(tmp_path_factory.mktemp("demo"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve, "PAGE", page)
        patch.setattr(serve, "SECONDS", 2)
        patch.setattr(serve.Handler, "timeout", 2)
        with running(export) as number:
            yield number


def exchange(port, sent):
    """All bytes that the server sends until it closes the connection."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                received += part
        except (BrokenPipeError, ConnectionResetError):
            pass  # it had heard enough
    return received


def statuses(received):
    """The codes of all answers."""
    return {int(status) for status in STATUS.findall(received)}


PARTS = [
    *("/", "//", "..", "%2e%2e", "%2f", "%5c", "%00", "%", "%zz", "%ff", "\\", "\x01", "\xe9", "~"),
    *("*", "?", "#", ";", ":", "@", "model", "etc", "passwd", "secret", "link", "index.html"),
    *("http://127.0.0.1", "node_modules/onnxruntime-web/dist", "proc/self/environ", "a" * 300),
]
PATHS = st.one_of(
    st.sampled_from(["/", "/demo.js", "/model/model.onnx", "/model/link", "/model//etc/passwd"]),
    st.lists(st.sampled_from(PARTS), max_size=8).map("".join),
)
ODD_HEADERS = """Range: bytes=0-3|Range: bytes=9-1|Range: bytes=0-,1-2,3-4|Range: x|If-None-Match: *
If-Modified-Since: x|If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT|Connection: keep-alive
Connection: close|Expect: 100-continue|Transfer-Encoding: chunked|Content-Length: -1
Content-Length: 99999999999999|Upgrade: websocket|Host: evil.example|Accept-Encoding: gzip
 folded: x|no colon|: empty""".replace("\n", "|").split("|")
HEADERS = st.lists(
    st.one_of(
        st.sampled_from([*ODD_HEADERS, "X: " + "a" * 70_000]),
        st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=20),
    ),
    max_size=4,
)
METHODS = ["GET", "HEAD", "POST", "PUT", "OPTIONS", "TRACE", "CONNECT", "get", "", "G\x00T"]
VERSIONS = [" HTTP/1.1", " HTTP/1.0", "", " HTTP/0.9", " HTTP/2.0", " HTTP/9999999.1", " x y"]
REQUESTS = st.tuples(
    st.one_of(st.sampled_from(METHODS[:2]), st.sampled_from(METHODS[2:])),
    PATHS,
    st.one_of(st.just(VERSIONS[0]), st.sampled_from(VERSIONS[1:])),
    HEADERS,
    st.binary(max_size=30),
    st.integers(1, 3),
)


def written(port, request):
    """The bytes of a request, which may already be bytes."""
    if isinstance(request, bytes):
        return request
    method, path, version, headers, body, times = request
    head = [f"{method} {path}{version}", f"Host: 127.0.0.1:{port}", *headers, ""]
    return ("".join(f"{line}\r\n" for line in head).encode("latin-1") + body) * times


@pytest.mark.parametrize(
    ("requests", "examples"), [(REQUESTS, 250), (st.binary(max_size=300), 100)]
)
def test_any_request_is_answered_cleanly(port, capfd, requests, examples):
    @hypothesis.settings(max_examples=examples * TIMES, **SETTINGS)
    @hypothesis.given(requests)
    def check(request):
        received = exchange(port, written(port, request))
        assert SECRET not in received and b"root:" not in received and b"Traceback" not in received
        assert statuses(received) <= EXPECTED, received[:300]
        assert not received or (statuses(received) and b"nosniff" in received), received[:300]

    check()
    plain = ("GET", "/", " HTTP/1.0", (), b"", 1)
    assert statuses(exchange(port, written(port, plain))) == {200}
    assert capfd.readouterr().err == ""
