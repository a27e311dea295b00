"""ZIP archives that hold a model: the checksums of their members, and members that are mapped."""

import contextlib
import io
import os
import struct
import zipfile
from collections.abc import Iterator

from vit_keras.annotated import short
from vit_keras.weights.containers.checks import (
    LARGEST_HEADER_BYTES,
    DamagedFile,
    check_directory,
    readable,
)

CHUNK_BYTES = 2**20
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # of a member: signature, lengths of name and extras
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others may take gigabytes to unpack
ENCRYPTED = 1  # a bit of the flags


class _Limited(io.FileIO):
    """A file of which no more than a directory's bytes are read at once, while it is opened."""

    limit: int | None = LARGEST_HEADER_BYTES

    def read(self, size: int | None = -1) -> bytes:
        size = -1 if size is None else size
        length = size if size >= 0 else os.fstat(self.fileno()).st_size - self.tell()
        if self.limit is not None and length > self.limit:
            raise zipfile.BadZipFile(f"its directory has more than {self.limit} bytes")
        return super().read(size)


@contextlib.contextmanager
def opened(path: str, kind: str = "archive") -> Iterator[zipfile.ZipFile]:
    """Opens a ZIP archive and looks at its directory.

    Args:
        path: The file.
        kind: What the file should be, for messages.

    Yields:
        The archive, in which every name stands once, no member is encrypted or packed by another
        method than deflation, and all of them together are not far larger than the file.

    Raises:
        DamagedFile: If the file is none, or whatever else is raised in the `with` statement.
    """
    with readable(f"{path!r} is no {kind}, or is damaged"), contextlib.ExitStack() as stack:
        file = stack.enter_context(_Limited(path))
        archive = stack.enter_context(zipfile.ZipFile(file))
        file.limit = None
        check_directory(path, archive)
        for entry in archive.infolist():
            if entry.compress_type not in METHODS or entry.flag_bits & ENCRYPTED:
                raise DamagedFile(
                    f"The members of {path!r} must be stored or deflated, and not encrypted. "
                    f"Received: {short(entry.filename)}"
                )
        yield archive


def verify_members(path: str, archive: zipfile.ZipFile) -> None:
    """Reads all members once; raises DamagedFile if one of them differs from its checksum."""
    for entry in archive.infolist():
        with readable(f"{entry.filename!r} in {path!r} is damaged"), archive.open(entry) as file:
            while file.read(CHUNK_BYTES):  # zipfile compares the checksum at the end
                pass


class StoredMember(io.RawIOBase):
    """A member that is not compressed, as a file that seeks at no cost.

    `zipfile` reads from the start of the member to go back.
    """

    def __init__(self, path: str, entry: zipfile.ZipInfo):
        self.file = open(path, "rb")  # noqa: SIM115 (closed by `close`)
        self.file.seek(entry.header_offset)
        header = self.file.read(_LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\3\4"):
            self.close()
            raise zipfile.BadZipFile(f"no header of {entry.filename!r}")
        _, name, extras = _LOCAL_HEADER.unpack(header)
        self.start, self.size = entry.header_offset + len(header) + name + extras, entry.file_size
        self.seek(0)

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self.size}[whence]
        return self.file.seek(self.start + max(base + offset, 0)) - self.start

    def tell(self):
        return self.file.tell() - self.start

    def readinto(self, buffer):
        left = max(self.size - self.tell(), 0)
        return self.file.readinto(memoryview(buffer)[:left])

    def close(self):
        self.file.close()
        super().close()
