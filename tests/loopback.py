"""HTTP servers on loopback, each in a thread of the test that starts it."""

import contextlib
import http.server
import re
import socketserver
import threading
import time


class LoopbackServer(http.server.ThreadingHTTPServer):
    """Answers by `handler` at a free port of this machine while its `running()` lasts."""

    daemon_threads = True

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler]):
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    @contextlib.contextmanager
    def running(self):
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self.let_go()
            self.shutdown()
            thread.join()
            self.server_close()

    def let_go(self):
        """Ends what requests wait for."""


class QuietHandler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        """Prints nothing."""


class FileServer(LoopbackServer):
    """Serves files and ranges of them, and cuts, stalls and refuses if told to.

    Attributes:
        files: `{path: content}`, or a folder.
        fails: Takes the number of a request; returns what it gets: a status such as 503,
            ("cut", n) to close after n bytes, or after that share of them, ("stall", n) to send no
            more after n bytes until `release` is set, "hang up", or None for the file.
        requests: The path and the range of each request.
        lag: The seconds before each answer.
        early: The number of bytes by which ranges begin before those requested.
    """

    early = 0

    def __init__(self, files, *plan, ranges=True, length=True, etag='"v1"'):
        """`plan` is what the first requests get."""
        super().__init__(FileHandler)
        self.files, self.fails, self.etag = files, dict(enumerate(plan, 1)).get, etag
        self.ranges, self.length, self.lag, self.requests = ranges, length, 0.0, []
        self.lock, self.asked, self.release = threading.Lock(), threading.Event(), threading.Event()

    def let_go(self):
        self.release.set()

    def read(self, path):
        """The content of a file, or None, and its ETag."""
        if isinstance(self.files, dict):
            return self.files.get(path), self.etag
        file = self.files / path.lstrip("/")
        return (file.read_bytes(), f'"{file.stat().st_mtime_ns}"') if file.is_file() else (None, "")


class FileHandler(QuietHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, span = self.server, re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"] or "")
        with server.lock:
            server.requests.append((self.path, span and span[0]))
            fault = server.fails(len(server.requests))
        time.sleep(server.lag)
        content, etag = server.read(self.path)
        if not server.ranges or self.headers["If-Range"] not in (None, etag):
            span = None
        self.close_connection = fault is not None or not server.length
        if isinstance(fault, int) or content is None:
            self.send_error(fault or 404)
        elif span and int(span[1]) >= len(content):
            self.send_error(416)
        elif fault != "hang up":
            self._send(content, etag, span, *(fault or ("cut", len(content))))

    do_HEAD = do_GET

    def _send(self, content, etag, span, fault, count):
        server, headers = self.server, {"ETag": etag} if etag else {}
        if span:
            first = int(span[1]) - server.early
            last = min(int(span[2] or len(content)), len(content) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            content = content[first : last + 1]
        if server.ranges:
            headers["Accept-Ranges"] = "bytes"
        if server.length:
            headers["Content-Length"] = str(len(content))
        self.send_response(206 if span else 200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        count = int(count * len(content)) if isinstance(count, float) else count
        self.wfile.write(content[:count])
        server.asked.set()
        if fault == "stall":
            server.release.wait()
            with contextlib.suppress(OSError):  # the client may have gone
                self.wfile.write(content[count:])


def every_third(number):
    """Every third request fails, in three ways by turns."""
    return (503, ("cut", 0.5), "hang up")[number // 3 % 3] if number % 3 == 0 else None


@contextlib.contextmanager
def hostile_server(head: bytes, body: bytes = b"", pause: float = 0.0):
    """Sends `head`, and `body` again and again, `pause` seconds before each byte or repetition.

    Yields the URL, and a list of the number of bytes that each client took.
    """
    over, taken = threading.Event(), []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(2**16)
            number = len(taken)
            taken.append(0)
            pieces = [head] if not pause else [bytes([byte]) for byte in head]
            with contextlib.suppress(OSError):
                while not over.is_set():
                    for piece in pieces:
                        time.sleep(pause)
                        self.request.sendall(piece)
                        taken[number] += len(piece)
                    pieces = [body] if body else []
                    time.sleep(0 if body else 0.01)

    server = LoopbackServer(Handler)
    server.let_go = over.set
    with server.running():
        yield server.url, taken
