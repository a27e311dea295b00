"""Files that are replaced at once: a reader finds the old one or the new, never a part."""

import contextlib
import os
import uuid
from collections.abc import Iterator


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[str]:
    """A temporary name beside `path`, which becomes it at the end; after an error it is gone."""
    folder, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(folder, f".{uuid.uuid4().hex}-{name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Replaces a file by one that holds `text`, in UTF-8."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())  # else a power cut may leave the new name with nothing in it
