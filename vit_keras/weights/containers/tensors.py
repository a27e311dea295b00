"""Tensors in files, read one at a time without running anything that a file says.

A reader has `shapes`, `{name: shape}`, `metadata`, `{str: str}`, `read(name)`, a float array, and
`verify()`, which raises ValueError where the data are damaged. What a file claims is compared with
what it is before any of it takes memory.
"""

import contextlib
import math
import os
import zipfile
import zlib

import numpy as np

# A file may claim this many times its size, for compressed zeros, or so many bytes in any case.
EXPANSION, ALWAYS_ALLOWED = 20, 2**28


class DamagedFile(ValueError):
    """A file of weights that is not what its name or its header says."""


def check_claim(path: str, claimed: int) -> None:
    """ValueError where a file's tensors would take far more memory than the file has bytes."""
    size = os.path.getsize(path)
    if claimed > max(EXPANSION * size, ALWAYS_ALLOWED):
        raise DamagedFile(
            f"Weights may take {EXPANSION} times the bytes of their file. Received: {path!r}, "
            f"{size} bytes that claim {claimed} bytes of tensors; no such file is opened"
        )


def as_float(array: np.ndarray, name: str) -> np.ndarray:
    """Float32 for the half types, `|V2` being how NumPy stores bfloat16; float32 and 64 as is."""
    if array.dtype == np.dtype("V2"):
        bits = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32)
    if array.dtype.name in ("float16", "bfloat16"):
        return array.astype(np.float32)
    if array.dtype not in (np.float32, np.float64):
        raise DamagedFile(f"Weights must be floating-point. Received: {name!r} of {array.dtype}")
    return array


class NpzTensors:
    """NumPy archives; object arrays, which would be unpickled, are refused by their headers."""

    def __init__(self, path: str):
        self.path, self.metadata = path, {}
        try:
            self.zip = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            raise DamagedFile(f"{path!r} is not a NumPy archive, or is cut short") from error
        try:
            check_claim(path, sum(entry.file_size for entry in self.zip.infolist()))
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
        try:
            with self.zip.open(self.entries[name]) as file:
                yield file
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise DamagedFile(f"{name!r} in {self.path!r} is damaged ({error})") from error
        except (NotImplementedError, RuntimeError) as error:  # encrypted, unknown compression
            raise DamagedFile(f"{name!r} in {self.path!r} cannot be read ({error})") from error

    def read(self, name):
        with self._opened(name) as file:
            shape, fortran_order, dtype = npy_header(file, name)
            data = bytearray(file.read())
        array = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran_order else "C")
        return as_float(array, name)

    def verify(self):
        for name in self.entries:
            with self._opened(name) as file:
                while file.read(2**22):  # compares the checksum at the end
                    pass

    def close(self):
        self.zip.close()


def npy_header(file, what: str):
    """(shape, fortran_order, dtype) of the `.npy` that `file` is at the start of."""
    headers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        version = np.lib.format.read_magic(file)
        shape, fortran_order, dtype = headers[version](file)
    except (ValueError, KeyError) as error:
        raise DamagedFile(f"{what} is not an array ({error})") from error
    if dtype.hasobject:
        raise DamagedFile(
            f"{what} holds Python objects, which loading would run as code; weights are arrays of "
            "numbers"
        )
    return shape, fortran_order, dtype


class Safetensors:
    """safetensors files, read from memory maps; the library compares header and file.

    Each tensor has a map of its own: what one map has read stays in memory until it is closed.
    """

    def __init__(self, path: str):
        import ml_dtypes  # noqa: F401  (teaches NumPy bfloat16)

        self.path = path
        with self._opened() as file:
            self.metadata = file.metadata() or {}
            names = file.keys()
            self.shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}

    def _opened(self):
        import safetensors

        try:
            return safetensors.safe_open(self.path, framework="np")
        except safetensors.SafetensorError as error:
            raise DamagedFile(f"{self.path!r} is not a safetensors file ({error})") from error

    def read(self, name):
        with self._opened() as file:
            return as_float(file.get_tensor(name), name)

    def verify(self):
        """Nothing to do: the format has no checksum, and sizes were compared on opening."""

    def close(self):
        """Nothing to do: no map stays open."""


class TorchTensors:
    """`torch.save`d state dicts, from memory maps; nothing but tensors is unpickled.

    Each tensor has a map of its own, as in `Safetensors`; files of the old form, which are not
    archives, cannot be mapped and are held whole.
    """

    WRAPPERS = ("state_dict", "model")

    def __init__(self, path: str):
        self.path, self.metadata = path, {}
        state = self._checked(self._state())
        self.shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        self.held = None if zipfile.is_zipfile(path) else state

    def _state(self):
        state = self._load(self.path)
        for wrapper in self.WRAPPERS:
            if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
                state = state[wrapper]
        return state

    @staticmethod
    def _load(path):
        import torch

        zipped = zipfile.is_zipfile(path)
        if zipped:
            with zipfile.ZipFile(path) as archive:
                check_claim(path, sum(entry.file_size for entry in archive.infolist()))
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
        except Exception as error:
            reason = str(error).split("\n")[-1] if "Unsupported" in str(error) else str(error)
            raise DamagedFile(
                f"{path!r} is not a state dict of tensors: it is damaged, or holds Python objects, "
                f"which loading would run as code ({reason.strip()[:200]})"
            ) from error

    def _checked(self, state):
        import torch

        if not isinstance(state, dict):
            raise DamagedFile(
                f"{self.path!r} must hold a state dict. Received: {type(state).__name__}"
            )
        tensors = {str(k): v for k, v in state.items() if isinstance(v, torch.Tensor)}
        for name, tensor in tensors.items():
            if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
                raise DamagedFile(
                    f"{name!r} in {self.path!r} claims shape {tuple(tensor.shape)} and has "
                    f"{tensor.untyped_storage().nbytes()} bytes"
                )
        return tensors

    def read(self, name):
        import torch

        tensor = (self._checked(self._state()) if self.held is None else self.held)[name]
        if tensor.dtype in (torch.bfloat16, torch.float16):
            tensor = tensor.float()
        return as_float(tensor.detach().numpy(), name)

    def verify(self):
        """Nothing to do: sizes were compared on opening."""

    def close(self):
        self.held = {}
