"""PyTorch's state dicts: `.pth`, `.pt` and `.bin`."""

import argparse
import re
import zipfile
import zlib

import numpy as np

from vit_keras.support import extras
from vit_keras.support.files import is_zip
from vit_keras.weights.containers.archives import opened
from vit_keras.weights.containers.checks import DamagedFile, Reader, UnreadModel, readable

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
        """Maps the file, and renews the map once enough was read."""
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
