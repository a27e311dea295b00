"""Serves the page and an exported model on this machine: `python demo/serve.py EXPORT`.

EXPORT is a folder that `vit-keras export MODEL --format onnx --attention` wrote. The command
`npm ci --prefix demo` installs the page's runtime.
"""

import argparse
import base64
import functools
import hashlib
import http.server
import pathlib
import re
import socket
import sys
import urllib.parse

PAGE = pathlib.Path(__file__).resolve().parent
SCRIPTS = ("demo.js", "card.js", "model.js", "pixels.js", "drawing.js", "colors.js", "offline.js")
FILES = ("index.html", "style.css", *SCRIPTS)
RUNTIME = "node_modules/onnxruntime-web/dist"
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",  # threads need both policies
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
POLICY = (  # {} stands for the hashes of the scripts inside the page
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval' blob: {}; worker-src 'self' blob:; "
    "connect-src 'self' blob: data:; img-src 'self' blob: data:; media-src 'self' blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
INLINE = re.compile(rb"<script[^>]*>(.+?)</script>", re.DOTALL)
SECONDS = 30  # that a client may keep a connection without a word
MOST_UNREAD = 2**20  # bytes that are read of what a client sends after its request


def served_files(export: pathlib.Path) -> dict[str, pathlib.Path]:
    """The files that are served, by the path of their address: the page, its runtime, the export.

    Links that lead out of the page's folder or out of the export are left out.
    """
    files = {f"/{name}": PAGE / name for name in FILES} | {"/": PAGE / "index.html"}
    for prefix, folder in ((f"/{RUNTIME}/", PAGE / RUNTIME), ("/model/", export)):
        root = folder.resolve()
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.resolve().is_relative_to(root):
                files[prefix + path.relative_to(root).as_posix()] = path.resolve()
    return files


def is_itself(path: pathlib.Path) -> bool:
    """Whether a resolved path still is a file, and no link has taken a place in it since."""
    return path.is_file() and path.resolve() == path


def policy() -> str:
    """The page's Content-Security-Policy: only what it brings itself may run."""
    scripts = INLINE.findall((PAGE / "index.html").read_bytes())
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in scripts]
    return POLICY.format(" ".join(f"'sha256-{hash}'" for hash in hashes))


class Handler(http.server.SimpleHTTPRequestHandler):
    """Answers GET and HEAD for the addresses in `files`, asked for under a name of this machine."""

    timeout = SECONDS
    server_version, sys_version = "demo", ""
    extensions_map = {  # noqa: RUF012
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def __init__(self, *args, files, policy, **kwargs):
        self.files, self.policy = files, policy
        super().__init__(*args, **kwargs)

    @property
    def request_version(self):
        return self._version

    @request_version.setter
    def request_version(self, version):  # answers of HTTP/0.9 would have no status and no headers
        self._version = "HTTP/1.0" if version == "HTTP/0.9" else version

    def send_head(self):
        port = self.server.server_port
        if self.headers.get_all("Host") not in ([f"127.0.0.1:{port}"], [f"localhost:{port}"]):
            return self.send_error(http.HTTPStatus.MISDIRECTED_REQUEST)  # DNS rebinding
        path = urllib.parse.unquote(self.path.split("?")[0], errors="replace")
        if path not in self.files or not is_itself(self.files[path]):
            return self.send_error(http.HTTPStatus.NOT_FOUND)
        self.path = path
        return super().send_head()

    def translate_path(self, path):
        return str(self.files[path])

    def end_headers(self):
        for name, value in {**HEADERS, "Content-Security-Policy": self.policy}.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    """A thread for each client; many may wait for one."""

    request_queue_size = 512

    def shutdown_request(self, request):
        """Closes a connection after what the client still sends, which would cut off the answer."""
        try:
            request.shutdown(socket.SHUT_WR)
            request.settimeout(1)
            for _ in range(MOST_UNREAD // 2**16):
                if not request.recv(2**16):
                    break
        except OSError:
            pass
        self.close_request(request)

    def handle_error(self, request, client_address):
        """Says in a line what went wrong; a client that has gone is no error."""
        error = sys.exception()
        if not isinstance(error, OSError):
            print(f"serve.py: error: {type(error).__name__}: {error}", file=sys.stderr)


def server(export: pathlib.Path, port: int) -> Server:
    """A server of the page and the folder `export`, on 127.0.0.1 alone.

    Raises:
        ValueError: If `export` holds no ONNX export, or the page's runtime is not installed.
    """
    if not list(export.glob("*.onnx")) or not (export / "manifest.json").is_file():
        raise ValueError(
            f"EXPORT must be a folder with an exported ONNX file. Received: {str(export)!r}. "
            "Make one with `vit-keras export MODEL --format onnx --attention --out DIR`"
        )
    if not (PAGE / RUNTIME).is_dir():
        raise ValueError("The page's runtime is not installed. Run `npm ci --prefix demo`")
    handler = functools.partial(Handler, files=served_files(export), policy=policy())
    return Server(("127.0.0.1", port), handler)


def main():
    parser = argparse.ArgumentParser(prog="serve.py", description=__doc__.splitlines()[0])
    parser.add_argument("export", metavar="EXPORT", type=pathlib.Path)
    parser.add_argument("--port", type=int, default=8000, help="port; 0 for any free one (8000)")
    options = parser.parse_args()
    with server(options.export, options.port) as running:
        print(f"http://127.0.0.1:{running.server_port}/", flush=True)
        running.serve_forever()


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"serve.py: error: {error}")
    except KeyboardInterrupt:
        pass
