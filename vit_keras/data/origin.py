"""Where pictures come from, and which of them cannot be read."""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import NoReturn

from vit_keras.files import read_text


class UnreadableImageError(ValueError):
    """An image cannot be read, and none may replace it; the message names the image."""


class UnreachableError(OSError):
    """A file could not be read, however often that was tried; no other may stand in for it."""


class WholeFault(ValueError):
    """An image cannot be read; the message names it."""


class UnreadableImages:
    """Collects the pictures that cannot be read.

    Attributes:
        stop: Whether the first one stops the run.
        names: The names of those that the next picture replaces.
    """

    def __init__(self, stop: bool = True):
        self.stop = stop
        self.names: set[str] = set()
        self.file: pathlib.Path | None = None
        self.error: UnreadableImageError | None = None

    def record_in(self, file: pathlib.Path) -> None:
        """Reads the names that `file` holds, and appends every new one to it."""
        self.file = file
        if file.is_file():
            remedy = "Delete it; the run then counts its unreadable images anew"
            lines = read_text(file, remedy).splitlines()
            self.names |= {json.loads(line) if line.startswith('"') else line for line in lines}

    def add(self, name: str, reason: str) -> None:
        """Adds a picture that cannot be read.

        Raises:
            UnreadableImageError: If the first such picture stops the run, with the reason.
        """
        if self.stop:
            self.fail(
                f"{reason}. Repair or remove it, or set data.on_corrupt to skip, so that the next "
                "image replaces it"
            )
        if name not in self.names:
            self.names.add(name)
            if self.file is not None:
                with open(self.file, "a", encoding="utf-8") as file:
                    file.write(f"{one_line(name)}\n")

    def fail(self, message: str) -> NoReturn:
        """Raises an `UnreadableImageError`, and keeps it for `reading`."""
        self.error = UnreadableImageError(message)
        raise self.error

    @contextlib.contextmanager
    def reading(self):
        """Raises the `UnreadableImageError` itself, where batches are read inside the block.

        On TensorFlow, `fit` raises an error of its own instead, whose message holds a traceback.
        """
        self.error = None
        try:
            yield
        except Exception as error:
            if self.error is None or error is self.error:
                raise
            raise self.error from None

    def report(self) -> str:
        """Returns a line that counts and names the pictures, or an empty string."""
        if not self.names:
            return ""
        names = ", ".join(map(one_line, sorted(self.names)))
        return f"{len(self.names)} unreadable images replaced: {names}"


def one_line(name: str) -> str:
    """A name as it is, or as a JSON string if it holds line breaks or bytes that are no text."""
    return name if name.isprintable() and not name.startswith('"') else json.dumps(name)


@dataclasses.dataclass(frozen=True)
class Origin:
    """The source of encoded images, some of which may be unreadable.

    Attributes:
        files: Returns the name and the path of each file of the whole split.
        name: Maps an index to the name of an image, such as its path.
        channels: The number of channels, 1 or 3.
        unreadable: Collects the images that cannot be read.
        pixel_scale: The factor that brings the stored pixels to [0, 255].
    """

    files: Callable[[], Sequence[tuple[str, str | os.PathLike]]]
    name: Callable[[int], str]
    channels: int
    unreadable: UnreadableImages
    pixel_scale: int = 1


def read_file(path: str) -> bytes:
    """Returns the bytes of a file."""
    with open(path, "rb") as file:
        return file.read()
