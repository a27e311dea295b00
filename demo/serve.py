"""Serves the page and an exported model on this machine: `python demo/serve.py EXPORT`.

EXPORT is a folder that `vit-keras export MODEL --format litert --attention` wrote. The command
`npm ci --prefix demo` installs the page's runtime.
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
    """Serves the page's files, its runtime, and the export under `model/`; nothing else."""

    extensions_map = {  # noqa: RUF012
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".wasm": "application/wasm",
    }

    def __init__(self, *args, export, **kwargs):
        self.export = export
        super().__init__(*args, **kwargs)

    def translate_path(self, path):
        path = path.split("?")[0].lstrip("/") or "index.html"
        if ".." in path.split("/"):
            return str(PAGE / "nothing")
        if path.startswith("model/"):
            return str(self.export / path.removeprefix("model/"))
        allowed = path in FILES or path.startswith(RUNTIME)
        return str(PAGE / (path if allowed else "nothing"))

    def end_headers(self):
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")  # threads need both policies
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, *_):
        pass


def server(export: pathlib.Path, port: int) -> http.server.ThreadingHTTPServer:
    """A server of the page and the folder `export`, on 127.0.0.1 alone.

    Raises:
        ValueError: If `export` holds no TFLite export, or the page's runtime is not installed.
    """
    if not list(export.glob("*.tflite")) or not (export / "manifest.json").is_file():
        raise ValueError(
            f"EXPORT must be a folder with an exported TFLite file. Received: {str(export)!r}. "
            "Make one with `vit-keras export MODEL --format litert --attention --out DIR`"
        )
    if not (PAGE / RUNTIME).is_dir():
        raise ValueError("The page's runtime is not installed. Run `npm ci --prefix demo`")
    handler = functools.partial(Handler, export=export.resolve())
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


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
