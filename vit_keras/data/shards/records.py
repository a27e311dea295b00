"""What is known of each record in a shard, and what speaks against a shard."""

from collections.abc import Callable, Sized
from typing import NamedTuple, Protocol

MOST_CLASSES = 2**20  # whose names fill no memory


class Record(NamedTuple):
    """A picture in a shard.

    Attributes:
        offset: The first byte of the picture, or the number of the record in the shard.
        length: Its number of bytes; 0 where `offset` is a number.
        label: The number or the name of its class; None without one.
    """

    offset: int
    length: int
    label: int | str | None


class Files(Protocol):
    """The files of a data set: see `ShardFiles`."""

    @property
    def shards(self) -> Sized:
        """The shards."""

    def read(self, number: int, offset: int, length: int) -> bytes:
        """Reads some bytes of a file."""

    def path(self, number: int) -> str:
        """Returns where a file is on this machine."""


# From the number of a record in all files, the number of its file, its offset and its length.
Reader = Callable[[int, int, int, int], bytes]


def damaged(path: str, reason: str) -> ValueError:
    """The error for a shard that cannot be read."""
    reason = " ".join(reason.split())
    return ValueError(f"{path!r} is no whole shard ({reason}). Restore it, or leave it out")


def check_class(path: str, where: str, label: int) -> int:
    """Checks the number of a class.

    Raises:
        ValueError: If it is negative or absurdly large.
    """
    if not 0 <= label < MOST_CLASSES:
        raise damaged(path, f"{where} has the class {label}, not one of 0 to {MOST_CLASSES - 1}")
    return label
