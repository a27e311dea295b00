"""Where the commands that write rows of pictures read and write: standard streams and files."""

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any


def arguments(words: Sequence[str]) -> Iterator[str]:
    """The arguments, with the lines of standard input in place of `-`."""
    for argument in words:
        if argument == "-":
            yield from filter(None, (line.rstrip("\n") for line in sys.stdin))
        else:
            yield argument


@contextlib.contextmanager
def output(path: str | None) -> Iterator[IO[bytes] | Any]:
    """Standard output, or a file that appears once it is complete.

    Raises:
        ValueError: Another process writes the file.
    """
    from vit_keras.support.file_lock import claimed_output
    from vit_keras.support.files import replacing

    if path is None:
        yield StandardOutput()
        return
    with (
        claimed_output(path, "a table of pictures"),
        replacing(path) as temporary,
        open(temporary, "wb") as file,
    ):
        yield file
    print(f"written: {path}")


class StandardOutput(io.RawIOBase):
    """Shows each write at once. A notebook's standard output takes text alone."""

    def writable(self):
        return True

    def write(self, content):
        sys.stdout.write(bytes(content).decode())
        sys.stdout.flush()
        return len(content)
