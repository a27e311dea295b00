"""The demo's server with a small page and export, beside which a secret lies."""

import contextlib
import pathlib
import threading
from collections.abc import Iterator

from demo import serve

SECRET = b"a secret of this machine"


def write_page(root: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes the folders of the page and of the export, and the secret; returns the two folders."""
    page, export = root / "page", root / "export"
    (page / serve.RUNTIME).mkdir(parents=True)
    export.mkdir()
    for name in serve.FILES:
        (page / name).write_text(name)
    (page / serve.RUNTIME / "a.wasm").write_bytes(b"\0asm")
    for name in ("model.onnx", "manifest.json"):
        (export / name).write_text(name)
    (root / "secret").write_bytes(SECRET)
    (export / "link").symlink_to(root / "secret")
    return page, export


@contextlib.contextmanager
def running(export: pathlib.Path) -> Iterator[int]:
    """Serves an export, and yields the port."""
    with serve.server(export, 0) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()
