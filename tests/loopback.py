"""HTTP servers on loopback, each in a thread of the test that starts it."""

import contextlib
import http.server
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

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", taken
    finally:
        over.set()
        server.shutdown()
        server.server_close()
