"""HTTP servers on loopback, each in a thread of the test that starts it."""

import contextlib
import http.server
import threading


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
    """Prints nothing, because the tests look at what the server recorded."""

    def log_message(self, *args):
        """Prints nothing."""
