"""ZIP archives with a model: NumPy's `.npz`, and PyTorch's state dicts `.pth`, `.pt` and `.bin`."""

import argparse
import collections
import contextlib
import io
import math
import os
import re
import warnings
import zipfile
from collections.abc import Iterator

import numpy as np

from vit_keras.support import extras
from vit_keras.support.checks import short
from vit_keras.support.files import is_zip
from vit_keras.weights.containers.checks import (
    LARGEST_JSON_BYTES,
    DamagedFile,
    Reader,
    UnreadModel,
    check_claim,
    readable,
)

CHUNK_BYTES = 2**20
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others may take gigabytes to unpack
ENCRYPTED = 1  # a bit of the flags


class _Limited(io.FileIO):
    """A file that limits the bytes of one read while its directory is opened."""

    limit: int | None = LARGEST_JSON_BYTES

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
        check_claim(path, sum(entry.file_size for entry in archive.infolist()))
        counts = collections.Counter(archive.namelist())
        for entry in archive.infolist():
            if counts[entry.filename] > 1:  # readers disagree on which one to take
                raise DamagedFile(
                    f"An archive must hold each name once. Received: {path!r}, which holds "
                    f"{short(entry.filename)} twice; write it again"
                )
            if entry.compress_type not in METHODS or entry.flag_bits & ENCRYPTED:
                raise DamagedFile(
                    f"The members of {path!r} must be stored or deflated, and not encrypted. "
                    f"Received: {short(entry.filename)}"
                )
        yield archive


def verify_members(path: str, archive: zipfile.ZipFile) -> None:
    """Reads all members once; raises DamagedFile if one does not match its checksum."""
    for entry in archive.infolist():
        if not entry.CRC:  # the writer computed none
            continue
        with readable(f"{entry.filename!r} in {path!r} is damaged"), archive.open(entry) as file:
            while file.read(CHUNK_BYTES):  # zipfile compares the checksum at the end
                pass


MOST_AXES = 32


class NpzTensors(Reader):
    """Reads NumPy archives.

    Loading object arrays would unpickle them, so the reader refuses them by their headers.
    """

    def _open(self):
        self.zip = self.stack.enter_context(opened(self.path, "NumPy archive"))
        self.entries = {entry.filename.removesuffix(".npy"): entry for entry in self.zip.infolist()}
        if len(self.entries) < len(names := self.zip.namelist()):
            raise DamagedFile(
                f"{self.path!r} holds a tensor twice, with and without .npy: "
                f"{short(sorted({*names} & {*self.entries}))}"
            )
        self.shapes = {name: self._shape(name) for name in self.entries}

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


class TorchTensors(Reader):
    """Reads `torch.save`d state dicts from memory maps; unpickles nothing but tensors.

    A tensor in a dictionary has its key and a colon before its own name, as in
    `state_dict:head.bias`. Maps are renewed, as in `SafetensorsTensors`. Files in PyTorch's old
    format are not archives and cannot be mapped, so they are loaded whole.
    """

    def _open(self):
        self.torch = extras.require("torch", extra="torch", purpose="Reading PyTorch files")
        self.zipped = is_zip(self.path)
        with readable(f"{self.path!r} is not a state dict of tensors"):
            if self.zipped:
                with opened(self.path, "state dict of tensors") as archive:
                    _refuse_programs(self.path, archive)
                    _refuse_compression(self.path, archive)
                    verify_members(self.path, archive)
                    entries = archive.infolist()
                    sizes = [entry.file_size for entry in entries if "/data/" in entry.filename]
            self._map()
            if self.zipped and collections.Counter(self._storage_sizes()) - collections.Counter(
                sizes
            ):
                raise DamagedFile(f"{self.path!r} is damaged: a record is shorter than its tensor")
            self.shapes = {name: tuple(tensor.shape) for name, tensor in self.held.items()}

    def _map(self):
        """Maps the file, and renews the map once enough has been read."""
        self.held = {}  # the old map is closed before a new one opens
        self.held = self._checked(self._load())
        self.left = MAPPED_BYTES

    def _storage_sizes(self):
        strided = [x for x in self.held.values() if x.layout == self.torch.strided]
        storages = [tensor.untyped_storage() for tensor in strided]
        return {storage.data_ptr(): storage.nbytes() for storage in storages}.values()

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
            is_strided = tensor.layout == self.torch.strided  # `raw` refuses others
            if is_strided and tensor.nbytes > (held := tensor.untyped_storage().nbytes()):
                raise DamagedFile(
                    f"{name!r} in {self.path!r} claims shape {tuple(tensor.shape)} but has "
                    f"{held} bytes"
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
            self._map()
        tensor = self.held[name]
        self.left -= tensor.numel() * tensor.element_size()
        if tensor.dtype in (self.torch.bfloat16, self.torch.float16):
            tensor = tensor.float()
        try:
            return tensor.detach().numpy()
        except (TypeError, RuntimeError, NotImplementedError) as error:  # float8, sparse, …
            kind = tensor.dtype if tensor.layout == self.torch.strided else tensor.layout
            raise DamagedFile(
                f"Weights must be floating-point. Received: {name!r} of {kind} in {self.path!r}"
            ) from error

    def close(self):
        self.held = {}


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
    torch = extras.require("torch", extra="torch", purpose="Writing PyTorch files")
    with open(path, "wb") as file:
        try:
            state = {name: torch.from_numpy(np.array(array)) for name, array in tensors}
            torch.save(state, file)
        except RuntimeError as error:  # "unexpected pos" if the file could not be written
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
