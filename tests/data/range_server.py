"""An HTTP server on loopback that answers ranges, slowly and with errors if told to."""

import contextlib
import http.server
import pathlib
import re
import threading
import time


def every_third(number):
    """Faults in turn."""
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
        self.lag = 0.0

    @contextlib.contextmanager
    def running(self):
        """Serves while it is open."""
        lock, outer = threading.Lock(), self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.answer(with_body=False)

            def do_GET(self):
                self.answer(with_body=True)

            def answer(self, with_body):
                span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
                with lock:
                    outer.requests.append((self.path, span and span[0]))
                    fault = outer.fails(len(outer.requests))
                time.sleep(outer.lag)
                path = outer.folder / self.path.lstrip("/")
                if fault == "error" or not path.is_file():
                    self.send_response(503 if fault else 404)
                    self.send_header("Content-Length", "0")
                    return self.end_headers()
                if fault == "hang up":
                    self.close_connection = True
                    return None
                content, total = path.read_bytes(), path.stat().st_size
                self.send_response(206 if span else 200)
                if span:
                    first, last = int(span[1]), min(int(span[2] or total - 1), total - 1)
                    content = content[first : last + 1]
                    self.send_header("Content-Range", f"bytes {first}-{last}/{total}")
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if with_body:
                    self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)
                self.close_connection = fault == "cut"
                return None

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
