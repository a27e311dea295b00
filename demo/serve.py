"""Serves the page and an exported model on this machine: `python demo/serve.py EXPORT`.

EXPORT is a folder of `python export.py MODEL --format litert --attention`. The page's runtime
comes with `npm ci --prefix demo`.
"""

import argparse
import functools
import http.server
import pathlib
import sys

PAGE = pathlib.Path(__file__).parent
FILES = ("index.html", "style.css", "demo.js", "classifier.js", "offline.js")
RUNTIME = "node_modules/@litertjs/"


class Handler(http.server.SimpleHTTPRequestHandler):
    """The page's own files, its runtime, and under `model/` the export; nothing else."""

    extensions_map = {  # noqa: RUF012
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".wasm": "application/wasm",
    }

    def __init__(self, *given, export, **kwargs):
        self.export = export
        super().__init__(*given, **kwargs)

    def translate_path(self, path):
        path = path.split("?")[0].lstrip("/") or "index.html"
        if ".." in path.split("/"):
            return str(PAGE / "nothing")
        if path.startswith("model/"):
            return str(self.export / path.removeprefix("model/"))
        known = path in FILES or path.startswith(RUNTIME)
        return str(PAGE / (path if known else "nothing"))

    def end_headers(self):
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")  # threads need these two
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, *_):
        pass


def server(export: pathlib.Path, port: int) -> http.server.ThreadingHTTPServer:
    """The server, on 127.0.0.1 alone. ValueError where something is missing."""
    if not list(export.glob("*.tflite")) or not (export / "manifest.json").is_file():
        raise ValueError(
            f"The page shows an export. Received: {str(export)!r}, which is none; make one with "
            "`python export.py MODEL --format litert --attention --out DIR`"
        )
    if not (PAGE / RUNTIME).is_dir():
        raise ValueError("The page's runtime is not there: run `npm ci --prefix demo`")
    handler = functools.partial(Handler, export=export.resolve())
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


def main():
    parser = argparse.ArgumentParser(prog="serve.py", description=__doc__.splitlines()[0])
    parser.add_argument("export", metavar="EXPORT", type=pathlib.Path)
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free (8000)")
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
