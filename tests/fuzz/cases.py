"""Numbered cases: damaged files of each subject, and crafted files."""

import pathlib
import shutil
from typing import NamedTuple

import numpy as np

from tests.fuzz import crafted, damage, subjects
from tests.fuzz.craft import Craft
from tests.fuzz.crafted_torch import trap
from tests.fuzz.outcomes import RAN, SAID, UNSEEN, WRONG, judge, size, taken


class Case(NamedTuple):
    """A file to open.

    Attributes:
        subject: A key of `subjects.SUBJECTS`.
        kind: "damaged" by chance, or "crafted".
        number: The seed of the damage, or the place in the list of crafted files.
    """

    subject: str
    kind: str
    number: int


class Verdict(NamedTuple):
    """What became of a case.

    Attributes:
        outcome: One of `outcomes.OUTCOMES`.
        message: The error, or what differs.
        change: What was done to the file.
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
        self.valid: dict[str, tuple[pathlib.Path, list, list[Craft]]] = {}

    def prepared(self, name: str) -> tuple[pathlib.Path, list, list[Craft]]:
        """The folder of a subject's valid files, what they say, and its crafted files."""
        if name not in self.valid:
            folder = self.folder / "valid" / name
            path = subjects.made(name, folder)
            with subjects.quiet():
                said = subjects.SUBJECTS[name].open(path)
            self.valid[name] = folder, said, crafted.crafted(name, path)
        return self.valid[name]

    def judge(self, case: Case) -> Verdict:
        subject = subjects.SUBJECTS[case.subject]
        folder, right, crafts = self.prepared(case.subject)
        place = self.folder / "damaged" / case.subject
        subjects.copied(folder, place)
        path = place / subject.path
        if case.kind == "crafted":
            craft = crafts[case.number]
            craft.spoil(path)
            change = craft.name
        else:
            change = damaged(path, np.random.default_rng([sum(case.subject.encode()), case.number]))
        total = size(place)
        (outcome, message), peak = taken(lambda: judge(subject.open, path, right))
        if case.kind == "crafted" and outcome == WRONG and craft.valid:
            outcome = SAID
        if case.kind == "damaged" and outcome == WRONG and not subject.checked:
            outcome = UNSEEN
        if trap(path).exists():
            outcome = RAN
        shutil.rmtree(place)
        return Verdict(outcome, message, change, peak, total)


def damaged(path: pathlib.Path, rng: np.random.Generator) -> str:
    """Damages a file, or one in a folder; returns the change in words."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    file = files[int(rng.integers(len(files)))]
    data = file.read_bytes()
    changed = data
    while changed == data:
        change = damage.drawn(rng)
        changed = change(data)
    file.write_bytes(changed)
    return f"{file.name}: {change}"
