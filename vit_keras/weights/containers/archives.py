"""ZIP archives with a model, and NumPy's `.npz`: checksums, and memory-mapped members."""

import contextlib
import io
import math
import os
import struct
import warnings
import zipfile
from collections.abc import Iterator

import numpy as np

from vit_keras.support.annotated import short
from vit_keras.weights.containers.checks import (
    LARGEST_HEADER_BYTES,
    DamagedFile,
    Reader,
    check_directory,
    readable,
)

CHUNK_BYTES = 2**20
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # of a member: signature, lengths of name and extra
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others may take gigabytes to unpack
ENCRYPTED = 1  # a bit of the flags


class _Limited(io.FileIO):
    """A file that limits the bytes of one read while its directory is opened."""

    limit: int | None = LARGEST_HEADER_BYTES

    def read(self, size: int | None = -1) -> bytes:
        size = -1 if size is None else size
        length = size if size >= 0 else os.fstat(self.fileno()).st_size - self.tell()
        if self.limit is not None and length > self.limit:
            raise zipfile.BadZipFile(f"its directory has more than {self.limit} bytes")
        return super().read(size)


@contextlib.contextmanager
def opened(path: str, kind: str = "archive") -> Iterator[zipfile.ZipFile]:
    """Opens a ZIP archive and checks its directory.

    Args:
        path: The file.
        kind: The expected kind of file, for messages.

    Yields:
        The archive. Every name occurs once, members are stored or deflated and not encrypted, and
        together they are not much larger than the file.

    Raises:
        DamagedFile: If the file is not an archive, or on any other error in the `with` statement.
    """
    with readable(f"{path!r} is not a {kind}, or is damaged"), contextlib.ExitStack() as stack:
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
    """Reads all members once; raises DamagedFile if one does not match its checksum."""
    for entry in archive.infolist():
        with readable(f"{entry.filename!r} in {path!r} is damaged"), archive.open(entry) as file:
            while file.read(CHUNK_BYTES):  # zipfile compares the checksum at the end
                pass


class StoredMember(io.RawIOBase):
    """An uncompressed member as a file that seeks at no cost.

    `zipfile` rereads the member from its start to seek backward.
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


MOST_AXES = 32


class NpzTensors(Reader):
    """Reads NumPy archives.

    Loading object arrays would unpickle them, so the reader refuses them by their headers.
    """

    def __init__(self, path: str):
        super().__init__(path)
        self.stack = contextlib.ExitStack()
        try:
            self.zip = self.stack.enter_context(opened(path, "NumPy archive"))
            self.entries = {
                entry.filename.removesuffix(".npy"): entry for entry in self.zip.infolist()
            }
            if len(self.entries) < len(names := self.zip.namelist()):
                raise DamagedFile(
                    f"{path!r} holds a tensor twice, with and without .npy: "
                    f"{short(sorted({*names} & {*self.entries}))}"
                )
            self.shapes = {name: self._shape(name) for name in self.entries}
        except BaseException:
            self.close()
            raise

    def _shape(self, name):
        entry = self.entries[name]
        with self._opened(name) as file:
            shape, _, dtype = npy_header(file, f"{name!r} in {self.path!r}")
            bytes_in_file = entry.file_size - file.tell()
        if math.prod(shape) * dtype.itemsize != bytes_in_file:
            raise DamagedFile(
                f"{name!r} in {self.path!r} claims shape {shape} of {dtype} but has "
                f"{bytes_in_file} bytes"
            )
        return shape

    @contextlib.contextmanager
    def _opened(self, name):
        with (
            readable(f"{name!r} in {self.path!r} is damaged, or cannot be read"),
            self.zip.open(self.entries[name]) as file,
        ):
            yield file

    def raw(self, name):
        with self._opened(name) as file:
            shape, fortran_order, dtype = npy_header(file, name)
            data = bytearray(file.read())  # zipfile compares the checksum at the end
        return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran_order else "C")

    def close(self):
        self.stack.close()


def npy_header(file, label: str):
    """Reads `(shape, fortran_order, dtype)` of the `.npy` that begins in `file`."""
    headers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    with warnings.catch_warnings(), readable(f"{label} is not an array, or is damaged"):
        warnings.simplefilter("ignore")  # about headers from Python 2
        version = np.lib.format.read_magic(file)
        shape, fortran_order, dtype = headers[version](file)
    if dtype.hasobject:
        raise DamagedFile(
            f"{label} holds Python objects, which loading would run as code; weights are arrays "
            "of numbers"
        )
    least = min(shape, default=0)
    if least < 0 or len(shape) > MOST_AXES or dtype.itemsize == 0 or dtype.subdtype is not None:
        raise DamagedFile(f"{label} claims an impossible array, {dtype} of shape {short(shape)}")
    return shape, fortran_order, dtype


def write_npz(path: str, tensors, note: str) -> None:
    """Writes (name, array) pairs; the format has no place for `note`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in tensors:
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
