"""ZIP archives with a model: NumPy's `.npz`, and PyTorch's state dicts `.pth`, `.pt` and `.bin`."""

import argparse
import contextlib
import io
import math
import os
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np

from vit_keras.support import extras
from vit_keras.support.checks import short
from vit_keras.support.files import is_zip
from vit_keras.weights.containers.checks import (
    LARGEST_HEADER_BYTES,
    DamagedFile,
    Reader,
    UnreadModel,
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


# Pages that a map has read stay in memory, so it is renewed after this many bytes. Opening a map
# unpickles the names of all tensors, which takes 13 ms for S/16; twice the bytes would halve the
# time but use more memory.
MAPPED_BYTES = 2**22


def _torch(purpose):
    return extras.require("torch", extra="torch", purpose=purpose)


class TorchTensors(Reader):
    """Reads `torch.save`d state dicts from memory maps; unpickles nothing but tensors.

    A tensor in a dictionary has its key and a colon before its own name, as in
    `state_dict:head.bias`. Maps are renewed, as in `SafetensorsTensors`. Files in PyTorch's old
    format are not archives and cannot be mapped, so they are loaded whole.
    """

    def __init__(self, path: str):
        self.torch = _torch("Reading PyTorch files")
        super().__init__(path)
        self.zipped = is_zip(path)
        self.checksums: set[tuple[int, int]] = set()  # sizes and checksums of the storages
        self.compared: set[int] = set()  # where storages begin in the file
        with readable(f"{path!r} is not a state dict of tensors"):
            if self.zipped:
                self._read_directory()
            self._open()
            self.shapes = {name: tuple(tensor.shape) for name, tensor in self.held.items()}

    def _read_directory(self):
        """Checks the checksums of the small members, and keeps those of the storages."""
        with opened(self.path, "state dict of tensors") as archive:
            _refuse_programs(self.path, archive)
            _refuse_compression(self.path, archive)
            for entry in archive.infolist():
                member = entry.filename.partition("/")[2]
                if member.startswith("data/"):
                    self.checksums.add((entry.file_size, entry.CRC))
                elif entry.CRC:  # 0 where the writer computed none
                    archive.read(entry)  # zipfile checks it

    def _open(self):
        """Maps the file, and renews the map once enough has been read."""
        self.held = {}  # the old map is closed before a new one opens
        self.held = self._checked(self._load())
        self.left = MAPPED_BYTES
        storages = [tensor.untyped_storage() for tensor in self.held.values() if _is_plain(tensor)]
        self.start = min((storage.data_ptr() for storage in storages), default=0)

    def _load(self):
        try:
            # Training scripts save their arguments, which are plain values, beside the weights.
            with self.torch.serialization.safe_globals([argparse.Namespace]):
                return self.torch.load(
                    self.path, map_location="cpu", weights_only=True, mmap=self.zipped
                )
        except Exception as error:
            if known := re.search(r"GLOBAL ([\w.]+)", str(error)):
                raise UnreadModel(
                    f"{self.path!r} is not a state dict of tensors: it holds Python objects, which "
                    f"loading would run as code, such as {known[1]!r} of `torch.save(model)`. "
                    "If you trust it, open it with torch.load(path, weights_only=False) "
                    'and write its tensors: torch.save(model.state_dict(), "weights.pth")'
                ) from error
            raise DamagedFile(
                f"{self.path!r} is not a state dict of tensors: it is damaged, or holds Python "
                f"objects, which loading would run as code ({str(error).strip()[:200]})"
            ) from error

    def _checked(self, state):
        if not isinstance(state, dict):
            raise DamagedFile(
                f"{self.path!r} must hold a state dict. Received: {type(state).__name__}"
            )
        tensors = dict(self._flat(state))
        for name, tensor in tensors.items():
            if not _is_plain(tensor):
                continue
            if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
                raise DamagedFile(
                    f"{name!r} in {self.path!r} claims shape {tuple(tensor.shape)} but has "
                    f"{tensor.untyped_storage().nbytes()} bytes"
                )
        return tensors

    def _flat(self, state, above="", depth=4):
        """Yields the tensors in nested dictionaries, with the dictionaries' keys in their names."""
        for name, value in state.items():
            if isinstance(value, self.torch.Tensor):
                yield f"{above}{name}", value
            elif isinstance(value, dict) and isinstance(name, str) and depth:
                yield from self._flat(value, f"{above}{name}:", depth - 1)

    def raw(self, name):
        if self.zipped and self.left <= 0:
            self._open()
        tensor = self.held[name]
        if not _is_plain(tensor):
            raise self._refused(name, tensor)
        self.left -= tensor.numel() * tensor.element_size()
        if self.zipped:
            self._compare(name, tensor.untyped_storage())
        if tensor.dtype in (self.torch.bfloat16, self.torch.float16):
            tensor = tensor.float()
        try:
            return tensor.detach().numpy()
        except (TypeError, RuntimeError, NotImplementedError) as error:  # float8, …
            raise self._refused(name, tensor) from error

    def _refused(self, name, tensor):
        kind = tensor.dtype if tensor.layout == self.torch.strided else tensor.layout
        return DamagedFile(
            f"Weights must be floating-point. Received: {name!r} of {kind} in {self.path!r}"
        )

    def _compare(self, name, storage):
        """Checks a storage against the archive's checksums when it is first read."""
        place = storage.data_ptr() - self.start
        if place in self.compared:
            return
        content = self.torch.empty(0, dtype=self.torch.uint8).set_(storage).numpy()
        checksum = zlib.crc32(content)
        # 0 means that the writer computed none.
        if not self.checksums & {(len(content), checksum), (len(content), 0)}:
            raise DamagedFile(
                f"{name!r} in {self.path!r} is damaged: no record of the archive has the checksum "
                "of its bytes"
            )
        self.compared.add(place)

    def close(self):
        self.held = {}


def _is_plain(tensor):
    """Whether a tensor's elements are contiguous in its storage."""
    return str(tensor.layout) == "torch.strided" and not (tensor.is_quantized or tensor.is_meta)


def _refuse_programs(path, archive):
    if any(name.partition("/")[2] == "constants.pkl" for name in archive.namelist()):
        raise DamagedFile(
            "A file of weights must be a state dict. Received: "
            f"{path!r}, a TorchScript archive, which loading would run as code, such as OpenAI's. "
            'If you trust it, extract its tensors: torch.save(torch.jit.load(path, "cpu")'
            '.state_dict(), "weights.pt")'
        )


def _refuse_compression(path, archive):
    packed = [e.filename for e in archive.infolist() if e.compress_type != zipfile.ZIP_STORED]
    if packed:
        raise DamagedFile(
            "The records of a PyTorch file must not be compressed, since torch maps them. "
            f"Received: {path!r}, where {packed[0]!r} is"
        )


def write_torch(path: str, tensors, note: str) -> None:
    """Writes (name, array) pairs as a state dict; the format has no place for `note`."""
    torch = _torch("Writing PyTorch files")
    with open(path, "wb") as file:
        try:
            state = {name: torch.from_numpy(np.array(array)) for name, array in tensors}
            torch.save(state, file)
        except RuntimeError as error:  # "unexpected pos" if the file could not be written
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
