"""PyTorch's state dicts: `.pth`, `.pt` and `.bin`."""

import argparse
import contextlib
import zipfile

import numpy as np

from vit_keras import extras
from vit_keras.weights.containers.checks import DamagedFile, as_float, check_archive_claim


def _torch(purpose):
    return extras.require("torch", extra="torch", purpose=purpose)


class TorchTensors:
    """Reads `torch.save`d state dicts from memory maps; unpickles nothing but tensors.

    Each tensor has its own map, as in `SafetensorsTensors`. Files of PyTorch's old form are no
    archives and cannot be mapped, so they are held whole.
    """

    WRAPPERS = ("state_dict", "model", "weights", "teacher")

    def __init__(self, path: str):
        self.torch = _torch("Reading PyTorch files")
        self.path = path
        self.metadata: dict[str, str] = {}
        state = self._checked(self._state())
        self.shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        self.held = None if zipfile.is_zipfile(path) else state

    def _state(self):
        state = self._load()
        for wrapper in self.WRAPPERS:
            if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
                state = state[wrapper]
        return state

    def _load(self):
        zipped = zipfile.is_zipfile(self.path)
        if zipped:
            with self._archive() as archive:
                check_archive_claim(self.path, archive)
                _refuse_programs(self.path, archive)
                _refuse_compression(self.path, archive)
        try:
            # Training scripts save their arguments beside the weights, which are plain values.
            with self.torch.serialization.safe_globals([argparse.Namespace]):
                return self.torch.load(
                    self.path, map_location="cpu", weights_only=True, mmap=zipped
                )
        except Exception as error:
            reason = str(error).split("\n")[-1] if "Unsupported" in str(error) else str(error)
            raise DamagedFile(
                f"{self.path!r} is not a state dict of tensors: it is damaged, or holds Python "
                f"objects, which loading would run as code ({reason.strip()[:200]})"
            ) from error

    def _checked(self, state):
        if not isinstance(state, dict):
            raise DamagedFile(
                f"{self.path!r} must hold a state dict. Received: {type(state).__name__}"
            )
        tensors = {str(k): v for k, v in state.items() if isinstance(v, self.torch.Tensor)}
        for name, tensor in tensors.items():
            if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
                raise DamagedFile(
                    f"{name!r} in {self.path!r} claims shape {tuple(tensor.shape)} and has "
                    f"{tensor.untyped_storage().nbytes()} bytes"
                )
        return tensors

    def read(self, name):
        tensor = (self._checked(self._state()) if self.held is None else self.held)[name]
        if tensor.dtype in (self.torch.bfloat16, self.torch.float16):
            tensor = tensor.float()
        try:
            return as_float(tensor.detach().numpy(), name)
        except (TypeError, RuntimeError, NotImplementedError) as error:  # quantized, float8, …
            raise DamagedFile(
                f"Weights must be floating-point. Received: {name!r} of {tensor.dtype} in "
                f"{self.path!r}"
            ) from error

    @contextlib.contextmanager
    def _archive(self):
        try:
            with zipfile.ZipFile(self.path) as archive:
                yield archive
        except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError) as error:
            raise DamagedFile(f"{self.path!r} is damaged ({error})") from error

    def verify(self):
        """Compares the checksums of the archive's records; files of the old form have none."""
        if self.held is not None:
            return
        with self._archive() as archive:
            for entry in archive.infolist():
                if entry.CRC:  # 0 where the writer computed none
                    with archive.open(entry) as file:
                        while file.read(2**22):  # zipfile compares at the end
                            pass

    def close(self):
        self.held = {}


def _refuse_programs(path, archive):
    if any(name.partition("/")[2] == "constants.pkl" for name in archive.namelist()):
        raise DamagedFile(
            "A file of weights must be a state dict. Received: "
            f"{path!r}, a TorchScript archive, which loading would run as code, such as OpenAI's. "
            'Take its tensors out where you trust it: torch.save(torch.jit.load(path, "cpu")'
            '.state_dict(), "weights.pt")'
        )


def _refuse_compression(path, archive):
    packed = [e.filename for e in archive.infolist() if e.compress_type != zipfile.ZIP_STORED]
    if packed:
        raise DamagedFile(
            "The records of a PyTorch file are not compressed, since torch maps them as they are. "
            f"Received: {path!r}, where {packed[0]!r} is"
        )


def write_torch(path: str, tensors, note: str) -> None:
    """Writes (name, array) pairs as a state dict; the format has no place for `note`."""
    torch = _torch("Writing PyTorch files")
    torch.save({name: torch.from_numpy(np.array(array)) for name, array in tensors}, path)
