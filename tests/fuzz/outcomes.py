"""What opening a file came to, and how much memory it took."""

import pathlib
import re
import warnings
from collections.abc import Callable

REFUSED, RIGHT, WARNED, WRONG = "refused", "right", "right, warned", "wrong"
UNRELATED, UNNAMED = "unrelated exception", "refused without a name"
CRASH, HANG, MEMORY, RAN = "crash", "hang", "over the bound", "ran code"
SAID, UNSEEN = "another model, as it says", "wrong, no checksum"
FINE = (REFUSED, RIGHT, WARNED, SAID, UNSEEN)
OUTCOMES = (*FINE, WRONG, UNNAMED, UNRELATED, CRASH, HANG, MEMORY, RAN)
# What a refusal is. Its subclasses are not: a UnicodeDecodeError comes from far below.
REFUSALS = (ValueError, FileNotFoundError, OSError)
BELOW = (UnicodeError, EOFError)
# What may be taken besides four times the file: parsers, and tensors and configurations that are
# read before a contradiction is seen. `vit_keras.weights.containers.checks` has the limits.
CONSTANT_BYTES, TIMES = 2**28, 4


def judge(open_: Callable, path: pathlib.Path, right: list | None) -> tuple[str, str]:
    """Opens a file and compares what it says.

    Args:
        open_: Takes the path; returns a list of values.
        path: The file or folder.
        right: The values that the undamaged file says.

    Returns:
        One of the outcomes, and a message.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            values = open_(path)
        except REFUSALS as error:
            return _refusal(error, path)
        except Exception as error:
            return UNRELATED, f"{type(error).__name__}: {error}"
    told = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    if values != right:
        return WRONG, "; ".join(f"{a} for {b}" for a, b in zip(values[1:], right[1:]) if a != b)
    return (WARNED, told[0]) if told else (RIGHT, "")


def _refusal(error, path):
    message = str(error)
    if isinstance(error, BELOW) or type(error).__module__ == "json.decoder":
        return UNRELATED, f"{type(error).__name__}: {message}"
    return (REFUSED if is_named(message, path) else UNNAMED), f"{type(error).__name__}: {message}"


def is_named(message: str, path: pathlib.Path) -> bool:
    """Whether a message names the file or folder, or a file in it."""
    names = [path.name, *(inner.name for inner in path.parent.rglob("*"))]
    return any(re.search(rf"(^|[/'\"\s]){re.escape(name)}", message) for name in names)


def resident(field: str) -> int:
    """Bytes of this process's memory: "VmRSS" now, or "VmHWM" at the peak."""
    status = pathlib.Path("/proc/self/status").read_text()
    match = re.search(rf"{field}:\s+(\d+) kB", status)
    assert match
    return 1024 * int(match[1])


def taken(call: Callable):
    """Calls; returns the result and the bytes by which the resident memory rose at its peak.

    The kernel keeps the peak, so that memory of NumPy, torch, HDF5 and maps counts.
    """
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    result = call()
    return result, max(resident("VmHWM") - before, 0)


def size(path: pathlib.Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
