"""Requests that no browser sends: the demo's server answers them in few words, and stays up."""

import contextlib
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
    """All bytes that the server sends until it closes the connection, and the codes in them."""
    received = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as connection,
        contextlib.suppress(BrokenPipeError, ConnectionResetError),  # it had heard enough
    ):
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(1 << 16):
            received += part
    return received, {int(status) for status in STATUS.findall(received)}


PARTS = [
    *("/", "//", "..", "%2e%2e", "%2f", "%5c", "%00", "%", "%zz", "%ff", "\\", "\x01", "\xe9", "~"),
    *("*", "?", "#", ";", ":", "@", "model", "etc", "passwd", "secret", "link", "index.html"),
    *("http://127.0.0.1", "node_modules/onnxruntime-web/dist", "proc/self/environ", "a" * 300),
]
PATHS = st.sampled_from(
    ["/", "/demo.js", "/model/model.onnx", "/model/link", "/model//etc/passwd"]
) | st.lists(st.sampled_from(PARTS), max_size=8).map("".join)
ODD_HEADERS = """Range: bytes=0-3|Range: bytes=9-1|Range: bytes=0-,1-2,3-4|Range: x|If-None-Match: *
If-Modified-Since: x|If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT|Connection: keep-alive
Connection: close|Expect: 100-continue|Transfer-Encoding: chunked|Content-Length: -1
Content-Length: 99999999999999|Upgrade: websocket|Host: evil.example|Accept-Encoding: gzip
 folded: x|no colon|: empty""".replace("\n", "|").split("|")
ANY = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=20)
HEADERS = st.lists(st.sampled_from([*ODD_HEADERS, "X: " + "a" * 70_000]) | ANY, max_size=4)
METHODS = st.sampled_from(["GET", "HEAD"]) | st.sampled_from(
    ["POST", "PUT", "OPTIONS", "TRACE", "CONNECT", "get", "", "G\x00T"]
)
VERSIONS = st.just(" HTTP/1.1") | st.sampled_from(
    [" HTTP/1.0", "", " HTTP/0.9", " HTTP/2.0", " HTTP/9999999.1", " x y"]
)


@st.composite
def requests_to(draw, port=0):
    """The bytes of a request, once or several times."""
    head = [f"{draw(METHODS)} {draw(PATHS)}{draw(VERSIONS)}", f"Host: 127.0.0.1:{port}"]
    lines = [*head, *draw(HEADERS), ""]
    whole = "".join(f"{line}\r\n" for line in lines).encode("latin-1") + draw(
        st.binary(max_size=30)
    )
    return whole * draw(st.integers(1, 3))


@pytest.mark.parametrize(("kind", "examples"), [(requests_to, 250), (None, 100)])
def test_any_request_is_answered_cleanly(port, capfd, kind, examples):
    @hypothesis.settings(max_examples=examples * TIMES, **SETTINGS)
    @hypothesis.given(kind(port) if kind else st.binary(max_size=300))
    def check(request):
        received, statuses = exchange(port, request)
        assert SECRET not in received and b"root:" not in received and b"Traceback" not in received
        assert statuses <= EXPECTED, received[:300]
        assert not received or (statuses and b"nosniff" in received), received[:300]

    check()
    plain = f"GET / HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n"
    assert exchange(port, plain.encode())[1] == {200}
    assert capfd.readouterr().err == ""
