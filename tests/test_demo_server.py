"""The demo's server speaks of nothing but the page, its runtime and the export."""

import concurrent.futures
import contextlib
import http.client
import itertools
import os
import re
import socket
import struct
import threading

import pytest

from demo import serve

pytestmark = pytest.mark.once
SECRET = b"a secret of this machine"


@pytest.fixture
def port(tmp_path, monkeypatch):
    """A server of a small page and export, beside which secrets lie."""
    page, export = tmp_path / "page", tmp_path / "export"
    runtime, secrets = page / serve.RUNTIME, (tmp_path / "secret", page / "click.js")
    runtime.mkdir(parents=True)
    export.mkdir()
    for name in serve.FILES:
        (page / name).write_text(name)
    for name in ("model.onnx", "manifest.json"):
        (export / name).write_text(name)
    (runtime / "a.wasm").write_bytes(b"\0asm")
    for secret in (*secrets, tmp_path / "other" / "deep"):
        secret.parent.mkdir(exist_ok=True)
        secret.write_bytes(SECRET)
    for link, target in (("link", secrets[0]), ("folder", tmp_path / "other")):
        (export / link).symlink_to(target)
    (runtime / "link.js").symlink_to(secrets[1])
    monkeypatch.setattr(serve, "PAGE", page)
    monkeypatch.setattr(serve.Handler, "timeout", 2)
    with serve.server(export, 0) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def ask(port, path, method="GET", host=None):
    """The status, the headers and the body of an answer; the path is sent as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection._validate_path = lambda url: None  # http.client refuses some of the paths below
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", f"127.0.0.1:{port}" if host is None else host)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


SERVED = {
    "/": b"index.html",
    "/demo.js?v=2": b"demo.js",
    "/model/%6danifest.json": b"manifest.json",
    "/node_modules/onnxruntime-web/dist/a.wasm": b"\0asm",
}
REFUSED = (
    *("/model//etc/passwd", "/model/../secret", "/model/%2e%2e/secret", "/model/%00"),
    *("/model", "/model/", "/model/link", "/model/folder/deep", "/model/" + "a" * 4000),
    *("/node_modules/", "/node_modules/onnxruntime-web/dist/link.js", "/%ff%fe", "//etc/passwd"),
    *("/click.js", "*", "http://127.0.0.1/model/link"),
)


def test_the_page_and_the_export_are_served_and_nothing_else(port):
    for path, expected in SERVED.items():
        status, headers, body = ask(port, path)
        assert (status, body) == (200, expected)
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert ask(port, path, "HEAD")[::2] == (200, b"")
    for path, method in itertools.product(REFUSED, ("GET", "HEAD")):
        status, headers, body = ask(port, path, method)
        assert status == 404 and SECRET not in body and b"Traceback" not in body
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_other_hosts_are_refused(port):
    """A name that an attacker lets point here must not read the answers (DNS rebinding)."""
    for host in ("evil.example", f"evil.example:{port}", "", "127.0.0.1", "127.0.0.1:1"):
        status, _, body = ask(port, "/", host=host)
        assert status == 421 and b"index" not in body
    assert ask(port, "/", host=f"localhost:{port}")[0] == 200
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        hosts = f"Host: 127.0.0.1:{port}\r\nHost: evil.example\r\n"
        connection.sendall(f"GET / HTTP/1.1\r\n{hosts}\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.0 421")


ODD = (  # requests that no browser sends
    *(b"", b"\0" * 300, b"G\0T / HTTP/1.1\r\n\r\n", b"GET / HTTP/9999999.1\r\n\r\n"),
    *(b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"GET /" + b"a" * 70_000),
    *(b"TRACE / HTTP/1.1\r\n folded: x\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n" * 3),
    b"GET / HTTP/1.1\r\nRange: bytes=9-1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
)


def test_odd_requests_get_a_status_or_nothing(port, capfd):
    for request in ODD:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            with contextlib.suppress(OSError):  # it had heard enough
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                received = connection.recv(2**16)
                assert re.match(rb"HTTP/1\.[01] [245]\d\d ", received) or not received
                assert SECRET not in received and b"Traceback" not in received
    assert ask(port, "/")[0] == 200 and capfd.readouterr().err == ""


def test_what_takes_the_place_of_a_file_later_is_not_served(port, tmp_path):
    model = tmp_path / "export" / "model.onnx"
    model.unlink()
    for replace in (
        lambda: model.symlink_to(tmp_path / "secret"),
        lambda: (model.unlink(), model.mkdir()),
        lambda: (model.rmdir(), os.mkfifo(model)),
    ):
        replace()
        assert ask(port, "/model/model.onnx")[0] == 404


def test_slow_and_vanished_clients_do_not_keep_others_waiting(port, capfd, tmp_path):
    slow = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(300)]
    for connection in slow:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: ")  # and no more
    (tmp_path / "export" / "model.onnx").write_bytes(bytes(2**24))
    for _ in range(5):  # who leave in the middle of an answer
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            line = f"GET /model/model.onnx HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
            connection.sendall(line.encode())
            connection.recv(10)
            reset = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    with concurrent.futures.ThreadPoolExecutor(50) as clients:
        answers = [*clients.map(lambda _: ask(port, "/")[::2], range(50))]
    assert {*answers} == {(200, b"index.html")}
    for connection in slow:
        connection.close()
    assert ask(port, "/")[::2] == (200, b"index.html")
    assert capfd.readouterr().err == ""
