"""An HTTP server on loopback that answers ranges, slowly and with errors if told to."""

import contextlib
import pathlib
import re
import threading
import time

from tests.loopback import LoopbackServer, QuietHandler


def every_third(number):
    return ("error", "cut", "hang up")[number // 3 % 3] if number % 3 == 0 else None


class RangeServer:
    """Serves the files in a folder, without listing them.

    Attributes:
        requests: The path and the range of each request.
        fails: Takes the number of a request; returns "error", "cut", "hang up", or nothing.
        lag: The seconds before each answer.
    """

    def __init__(self, folder: pathlib.Path):
        self.folder, self.requests, self.fails = folder, [], lambda number: None
        self.lag, self.lock = 0.0, threading.Lock()

    @contextlib.contextmanager
    def running(self):
        handler = type("Handler", (RangeHandler,), {"outer": self})
        with LoopbackServer(handler).running() as server:
            yield server.url


class RangeHandler(QuietHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.do_GET(with_body=False)

    def do_GET(self, with_body=True):
        span, outer = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")), self.outer
        with outer.lock:
            outer.requests.append((self.path, span and span[0]))
            fault = outer.fails(len(outer.requests))
        time.sleep(outer.lag)
        path, headers = outer.folder / self.path.lstrip("/"), {"Accept-Ranges": "bytes"}
        if fault == "hang up":
            self.close_connection = True
            return
        if fault == "error" or not path.is_file():
            status, content = 503 if fault else 404, b""
        else:
            status, content = 206 if span else 200, path.read_bytes()
            headers["ETag"] = f'"{path.stat().st_mtime_ns}"'
        if status == 206:
            total, first = len(content), int(span[1])
            last = min(int(span[2] or total - 1), total - 1)
            content = content[first : last + 1]
            headers["Content-Range"] = f"bytes {first}-{last}/{total}"
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)
        self.close_connection = fault == "cut"
