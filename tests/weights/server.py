"""A file server on loopback that can cut, stall and refuse, and serves ranges or not."""

import contextlib
import threading

from tests.helpers import GOLDEN
from tests.loopback import LoopbackServer, QuietHandler
from vit_keras.weights import lookup

ROW = lookup("B/16", "imagenet21k")
BODY = (GOLDEN / "vit_token.npz").read_bytes()  # small, in the published format
FILES = {"/" + ROW.path: BODY, "/weights/" + ROW.path: BODY}


class Server(LoopbackServer):
    """Serves `files`, a dict of paths and bytes; `plan` says what to do with the first requests.

    An entry of the plan is a status such as 503, ("cut", n) to close after n bytes of the body,
    ("stall", n) to send no more after n bytes until `release` is set, or "ok".
    """

    def __init__(self, files, *plan, ranges=True, length=True, etag='"v1"'):
        super().__init__(Handler)
        self.files, self.plan, self.etag = files, list(plan), etag
        self.ranges, self.length = ranges, length
        self.requests = []  # (path, Range or None) of each GET
        self.asked, self.release = threading.Event(), threading.Event()

    def let_go(self):
        self.release.set()


class Handler(QuietHandler):
    def do_GET(self):
        server = self.server
        server.requests.append((self.path, self.headers["Range"]))
        todo = server.plan.pop(0) if server.plan else "ok"
        if isinstance(todo, int) or self.path not in server.files:
            self.send_error(todo if isinstance(todo, int) else 404)
            return
        body, start = server.files[self.path], self._start()
        if start >= len(body) > 0 and start:
            self.send_error(416)
            return
        self._send_headers(start, len(body))
        kind, count = ("cut", len(body)) if todo == "ok" else todo
        self.wfile.write(body[start : start + count])
        self.wfile.flush()
        server.asked.set()
        if kind == "stall":
            server.release.wait()
            with contextlib.suppress(OSError):  # the client may have gone
                self.wfile.write(body[start + count :])

    def _start(self):
        requested_range = self.headers["Range"]
        same_version = self.headers["If-Range"] in (None, self.server.etag)
        if not (self.server.ranges and requested_range and same_version):
            return 0
        return int(requested_range.removeprefix("bytes=").removesuffix("-"))

    def _send_headers(self, start, size):
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        if self.server.length:
            self.send_header("Content-Length", str(size - start))
        if self.server.etag:
            self.send_header("ETag", self.server.etag)
        self.end_headers()
