"""NumPy's `.npz` archives."""

import contextlib
import math
import warnings
import zipfile

import numpy as np

from vit_keras.annotated import short
from vit_keras.weights.containers.archives import opened
from vit_keras.weights.containers.checks import DamagedFile, as_float, readable

MOST_AXES = 32


class NpzTensors:
    """Reads NumPy archives.

    Loading object arrays would unpickle them, so the reader refuses these by their headers.
    """

    def __init__(self, path: str):
        self.path = path
        self.metadata: dict[str, str] = {}
        self.elsewhere: dict[str, str] = {}
        self.recorded = False
        self.stack = contextlib.ExitStack()
        try:
            self.zip = self.stack.enter_context(opened(path, "NumPy archive"))
            self.entries = {
                entry.filename.removesuffix(".npy"): entry for entry in self.zip.infolist()
            }
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
                f"{name!r} in {self.path!r} claims shape {shape} of {dtype} and has "
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

    def read(self, name):
        return as_float(self.raw(name), name, self.path)

    def verify(self):
        """Does nothing: each tensor is verified when it is read."""

    def close(self):
        self.stack.close()


def npy_header(file, label: str):
    """Reads `(shape, fortran_order, dtype)` of the `.npy` that begins in `file`."""
    headers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    with warnings.catch_warnings(), readable(f"{label} is not an array, or is damaged"):
        warnings.simplefilter("ignore")  # of headers by Python 2
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
