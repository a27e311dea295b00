"""ZIP archives of weights: NumPy's `.npz`, and PyTorch's state dicts `.pth`, `.pt` and `.bin`."""

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
from vit_keras.support.checks import LARGEST_JSON_BYTES, DamagedFile, short
from vit_keras.support.files import is_zip
from vit_keras.weights.containers import checks
from vit_keras.weights.containers.checks import Reader, readable

CHUNK_BYTES = 2**20
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others may take gigabytes to unpack


class _Limited(io.FileIO):
    """A file that limits the size of each read until the directory of its archive is read."""

    limit: int | None = LARGEST_JSON_BYTES

    def read(self, size: int | None = -1) -> bytes:
        left = os.fstat(self.fileno()).st_size - self.tell()
        length = left if size is None or size < 0 else size
        if self.limit is not None and length > self.limit:
            raise zipfile.BadZipFile(f"its directory has more than {self.limit} bytes")
        return super().read(size)


@contextlib.contextmanager
def opened(path: str, kind: str) -> Iterator[zipfile.ZipFile]:
    """Opens a ZIP archive and checks its directory.

    Args:
        path: The file.
        kind: The expected kind of file, for messages.

    Yields:
        The archive. Every name, with or without `.npy`, occurs once. Members are stored or
        deflated, and together are not much larger than the file.

    Raises:
        DamagedFile: If the file is not an archive, or on any other error in the `with` statement.
    """
    with readable(f"{path!r} is not a {kind}, or is damaged"), contextlib.ExitStack() as stack:
        file = stack.enter_context(_Limited(path))
        archive = stack.enter_context(zipfile.ZipFile(file))
        file.limit = None
        checks.check_claim(path, sum(entry.file_size for entry in archive.infolist()))
        counts = collections.Counter(name.removesuffix(".npy") for name in archive.namelist())
        for entry in archive.infolist():
            is_once = counts[entry.filename.removesuffix(".npy")] == 1  # readers take either one
            if not is_once or entry.compress_type not in METHODS:
                raise DamagedFile(
                    f"{path!r} must hold each name once, stored or deflated. Received: "
                    f"{short(entry.filename)}{'' if is_once else ' twice'}; write the file again"
                )
        yield archive


MOST_AXES = 32


class NpzTensors(Reader):
    """Reads NumPy archives.

    Loading object arrays would unpickle them, so the reader refuses them based on their headers.
    """

    def _open(self):
        self.zip = self.stack.enter_context(opened(self.path, "NumPy archive"))
        self.entries = {entry.filename.removesuffix(".npy"): entry for entry in self.zip.infolist()}
        for name, entry in self.entries.items():
            with self._opened(name) as file:
                shape, _, dtype = npy_header(file, f"{name!r} in {self.path!r}")
                bytes_in_file = entry.file_size - file.tell()
            if math.prod(shape) * dtype.itemsize != bytes_in_file:
                raise DamagedFile(
                    f"{name!r} in {self.path!r} claims the shape {shape} of {dtype} but has "
                    f"{bytes_in_file} bytes"
                )
            self.shapes[name] = shape

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
    """Reads `(shape, fortran_order, dtype)` from the start of a `.npy` file."""
    with warnings.catch_warnings(), readable(f"{label} is not an array, or is damaged"):
        warnings.simplefilter("ignore")  # about headers from Python 2
        major, minor = np.lib.format.read_magic(file)
        read = getattr(np.lib.format, f"read_array_header_{major}_{minor}")
        shape, fortran_order, dtype = read(file)
    is_possible = min(shape, default=0) >= 0 and len(shape) <= MOST_AXES and dtype.itemsize
    if not is_possible or dtype.hasobject or dtype.subdtype is not None:
        raise DamagedFile(f"{label} must hold numbers. Received: {dtype} of shape {short(shape)}")
    return shape, fortran_order, dtype


def write_npz(path: str, tensors, note: str) -> None:
    """Writes (name, array) pairs; the format has no place for `note`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in tensors:
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


class TorchTensors(Reader):
    """Reads `torch.save`d state dicts from memory maps; unpickles nothing but tensors.

    The name of a tensor in a nested dictionary begins with the dictionary's key and a colon, as in
    `state_dict:head.bias`. Maps are renewed, as in `SafetensorsTensors`. Files in PyTorch's old
    format are not archives and cannot be mapped, so they are loaded whole.
    """

    def _open(self):
        self.torch = extras.require("torch")
        self.zipped, sizes = is_zip(self.path), collections.Counter[int]()
        if self.zipped:
            with opened(self.path, "state dict of tensors") as archive:
                if any(e.compress_type != zipfile.ZIP_STORED for e in archive.infolist()):
                    raise DamagedFile(
                        f"{self.path!r} must be uncompressed, so that torch can memory-map it, and "
                        "not a TorchScript archive (such as OpenAI's), which runs code. If you "
                        "trust it, extract its tensors: torch.save(torch.jit.load(path, "
                        '"cpu").state_dict(), "weights.pt")'
                    )
                for entry in (e for e in archive.infolist() if e.CRC):  # some writers compute none
                    fault = f"{entry.filename!r} in {self.path!r} is damaged"
                    with readable(fault), archive.open(entry) as file:
                        while file.read(CHUNK_BYTES):  # zipfile compares the checksum at the end
                            pass
                sizes.update(e.file_size for e in archive.infolist() if "/data/" in e.filename)
        with readable(f"{self.path!r} is not a state dict of tensors"):
            self._map()
            self.shapes = {name: tuple(tensor.shape) for name, tensor in self.held.items()}
            tensors = self.held.values()
            checks.check_claim(self.path, sum(x.numel() * x.element_size() for x in tensors))
            strided = [x.untyped_storage() for x in tensors if x.layout == self.torch.strided]
            held = {x.data_ptr(): x.nbytes() for x in strided}  # `raw` refuses others
            if self.zipped and collections.Counter(held.values()) - sizes:
                raise DamagedFile(f"{self.path!r} is damaged: a record is shorter than its tensor")

    def _map(self):
        """Maps the file, or replaces its map with a new one."""
        self.held = {}  # the old map is closed before a new one opens
        options = {"map_location": "cpu", "weights_only": True, "mmap": self.zipped}
        try:
            # Training scripts save their arguments, which are plain values, beside the weights.
            with self.torch.serialization.safe_globals([argparse.Namespace]):
                state = self.torch.load(self.path, **options)
        except Exception as error:
            known = re.search(r"GLOBAL ([\w.]+)", str(error))
            raise DamagedFile(
                f"{self.path!r} is not a state dict of tensors: it is damaged, or holds Python "
                f"objects{f' such as {known[1]!r}' if known else ''}, which loading would run as "
                "code. If you trust it, open it with torch.load(path, weights_only=False) and "
                'write its tensors: torch.save(model.state_dict(), "weights.pth")'
            ) from error
        self.held = dict(self._flat(state))
        self.left = checks.MAPPED_BYTES

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
        with readable(f"Weights must be floats. Received: {name!r} in {self.path!r}"):
            return tensor.detach().numpy()  # fails for float8, sparse, …

    def close(self):
        self.held = {}


def write_torch(path: str, tensors, note: str) -> None:
    """Writes (name, array) pairs as a state dict; the format has no place for `note`."""
    torch = extras.require("torch")
    with open(path, "wb") as file:
        torch.save({name: torch.from_numpy(np.array(array)) for name, array in tensors}, file)
