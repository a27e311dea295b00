"""Numbered cases of damaged, crafted and forged files, and what opening them comes to."""

import pathlib
import re
import shutil
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tests.fuzz import damage, subjects
from tests.fuzz.crafted import Crafts, crafts, trap

REFUSED, RIGHT, WARNED, WRONG = "refused", "right", "right, warned", "wrong"
UNRELATED, UNNAMED = "unrelated exception", "refused without a name"
CRASH, HANG, MEMORY, RAN = "crash", "hang", "over the bound", "ran code"
SAID, UNSEEN = "another model, as it says", "wrong, no checksum"
FINE = (REFUSED, RIGHT, WARNED, SAID, UNSEEN)
OUTCOMES = (*FINE, WRONG, UNNAMED, UNRELATED, CRASH, HANG, MEMORY, RAN)
# What a refusal is. A UnicodeDecodeError is none: it comes from far below.
REFUSALS = (ValueError, FileNotFoundError, OSError)
BELOW = (UnicodeError, EOFError)


class Case(NamedTuple):
    """A file to open.

    Attributes:
        subject: A key of `subjects.SUBJECTS`.
        kind: "damaged" or "forged" by chance, or "crafted".
        number: The seed, or the place in the list of crafted files.
    """

    subject: str
    kind: str
    number: int


class Verdict(NamedTuple):
    """What became of a case: one of `OUTCOMES`, the error or what differs, and what was done.

    Attributes:
        memory: The bytes of memory that were taken at the peak.
        size: The bytes of the file, or of its folder.
    """

    outcome: str
    message: str
    change: str = ""
    memory: int = 0
    size: int = 0


class Cases:
    """Makes and judges cases in a folder of its own."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.valid: dict[str, tuple[pathlib.Path, list, Crafts]] = {}

    def prepared(self, name: str) -> tuple[pathlib.Path, list, Crafts]:
        """The folder of a subject's valid files, what they say, and its crafted files."""
        if name not in self.valid:
            folder = self.folder / "valid" / name
            path = subjects.made(name, folder)
            with subjects.quiet():
                said = subjects.SUBJECTS[name].open(path)
            self.valid[name] = folder, said, crafts(name, path)
        return self.valid[name]

    def judge(self, case: Case) -> Verdict:
        subject = subjects.SUBJECTS[case.subject]
        folder, right, crafted = self.prepared(case.subject)
        place = self.folder / "changed"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place)
        path, is_valid = place / subject.path, False
        rng = np.random.default_rng([sum(case.subject.encode()), case.number])
        if case.kind == "crafted":
            change = list(crafted)[case.number]
            crafted[change](path)
        elif case.kind == "forged":
            change, is_valid = subject.forge(path, rng)
        else:
            change = _damaged(path, rng)
        size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        (outcome, message), peak = _taken(lambda: judge(subject.open, path, right))
        if outcome == WRONG and is_valid:
            outcome = SAID
        if outcome == WRONG and case.kind == "damaged" and not subject.checked:
            outcome = UNSEEN
        if trap(path).exists():
            outcome = RAN
        return Verdict(outcome, message, change, peak, size)


def _damaged(path, rng):
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    file = files[int(rng.integers(len(files)))]
    content, change = damage.damaged(file.read_bytes(), rng)
    file.write_bytes(content)
    return f"{file.name}: {change}"


def judge(open_: Callable, path: pathlib.Path, right: list) -> tuple[str, str]:
    """Opens a file and compares what it says; returns one of the outcomes, and a message."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            values = open_(path)
        except Exception as error:
            return _refusal(error, path), f"{type(error).__name__}: {error}"
    told = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    if values != right:
        return WRONG, "; ".join(f"{a} for {b}" for a, b in zip(values[1:], right[1:]) if a != b)
    return (WARNED, told[0]) if told else (RIGHT, "")


def _refusal(error, path):
    below = isinstance(error, BELOW) or type(error).__module__ == "json.decoder"
    if below or not isinstance(error, REFUSALS):
        return UNRELATED
    names = [path.name, *(inner.name for inner in path.parent.rglob("*"))]
    named = any(re.search(rf"(^|[/'\"\s]){re.escape(name)}", str(error)) for name in names)
    return REFUSED if named else UNNAMED


def _taken(call):
    """Calls; returns the result and the bytes by which the resident memory rose at its peak.

    The kernel keeps the peak, so that memory of NumPy, torch, HDF5 and maps counts.
    """
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    result = call()
    return result, max(_resident("VmHWM") - before, 0)


def _resident(field):
    match = re.search(rf"{field}:\s+(\d+) kB", pathlib.Path("/proc/self/status").read_text())
    assert match
    return 1024 * int(match[1])
