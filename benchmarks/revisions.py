"""Compares the package in this checkout with the package in another git revision, in turns.

Both are measured by the same code, which is this checkout's: a process of the other revision
imports `vit_keras` alone from there.
"""

import contextlib
import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cases import Case
from benchmarks.contender_process import Process
from benchmarks.contenders import CONTENDERS, ROOT, names_of
from benchmarks.turns import quartiles

PACKAGE = "vit_keras"
LIMIT = 1.05  # what takes longer than this many times as long became slower
TURN_SECONDS = 0.5
HEAD = (
    "| contender | model | mode | precision | batch | pixels | CPU time ÷ {0}'s | time ÷ {0}'s |\n"
    "|---|---|---|---|--:|--:|--:|--:|"
)


class Row(NamedTuple):
    """How many times as long as with the other revision a contender takes, in each pair of turns.

    Attributes:
        contender: Its name.
        case: What it ran.
        cpu: Ratios of CPU time.
        clock: Ratios by the clock.
    """

    contender: str
    case: Case
    cpu: np.ndarray
    clock: np.ndarray

    def is_slower(self, by: str) -> bool:
        """Whether it became slower `by` "cpu" or "clock": see `is_slower`."""
        return is_slower(getattr(self, by))

    def as_dict(self) -> dict:
        """The row for a JSON file."""
        ratios = {"cpu": self.cpu.tolist(), "clock": self.clock.tolist()}
        return {"contender": self.contender, **self.case._asdict(), **ratios}

    def line(self) -> str:
        """A line of the table below `HEAD`."""
        size, mode, precision, batch, pixels = self.case
        ratios = " | ".join(map(quartiles, (self.cpu, self.clock)))
        return (
            f"| {self.contender} | {size} | {mode} | {precision} | {batch} | {pixels} | {ratios} |"
        )


def is_slower(ratios: np.ndarray) -> bool:
    """Whether the median of ratios of times is above 1.05, and their first quartile above 1.

    Where a quarter of the pairs says the opposite, the median tells about the machine.
    """
    first, median = np.percentile(ratios, (25, 50))
    return bool(median > LIMIT and first > 1)


@contextlib.contextmanager
def package_of(revision: str, repository: pathlib.Path = ROOT) -> Iterator[pathlib.Path]:
    """A temporary folder with the package as it is in a git revision, to import it from.

    It comes from `git archive`, so nothing about it stays in the repository.

    Raises:
        ValueError: If the repository has no such revision with the package.
    """
    command = ["git", "archive", "--format=tar", revision, "--", PACKAGE]
    archive = subprocess.run(command, cwd=repository, capture_output=True)
    if archive.returncode:
        raise ValueError(
            f"`--against` takes a git revision that has the folder {PACKAGE}. "
            f"Received: {revision!r} ({archive.stderr.decode().strip()})"
        )
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        yield pathlib.Path(folder)


def contenders(case: Case, options: Any) -> list[str]:
    """Those contenders for a case that are ours.

    Raises:
        ValueError: If the options name a contender whose code no revision changes.
    """
    peers = [name for name in options.contenders or () if not name.startswith(("ours", "lora"))]
    if peers:
        raise ValueError(
            "`--against` compares contenders that are ours: ours-… and lora-…. "
            f"Received: {', '.join(peers)}"
        )
    if options.contenders:
        return [name for name in options.contenders if CONTENDERS[name].runs(case)]
    return [name for name in names_of(case, options.backend) if name.startswith("ours")]


def take_turns(name: str, case: Case, options: Any, package: pathlib.Path) -> Row | None:
    """Times a contender with both packages; None, with a message, where it cannot run."""
    with contextlib.ExitStack() as stack:
        processes = []
        for place in (package, ROOT):
            processes.append(process := Process(name, case, place))
            stack.callback(process.close)
            if process.missing:
                print(f"{name}: cannot run ({process.missing})", file=sys.stderr)
                return None
        steps = options.steps
        if steps is None:
            step = processes[0].turn(1)["seconds"]
            steps = max(1, round(TURN_SECONDS / step))
        turns: dict[Process, list] = {process: [] for process in processes}
        for number in range(options.rounds):
            for process in processes[:: -1 if number % 2 else 1]:  # each goes first as often
                turns[process].append(process.turn(steps))
    then, now = turns.values()
    ratios = lambda key: np.array([b[key] / max(a[key], 1e-9) for a, b in zip(then, now)])
    return Row(name, case, ratios("cpu_seconds"), ratios("seconds"))


def compare(cases: Sequence[Case], options: Any) -> tuple[list[Row], list[Row]]:
    """Compares this checkout with the revision `options.against`, and prints a table.

    Processes of one program differ, for example by where their memory lies. So what seems slower is
    measured again with new processes, and the second row counts.

    Returns:
        All rows, and those that became slower by more than 5 %.
    """
    rows = []
    print(HEAD.format(options.against), flush=True)
    with package_of(options.against) as package:
        for case in cases:
            for name in contenders(case, options):
                row = take_turns(name, case, options, package)
                if row and row.is_slower(options.by):
                    print(row.line(), flush=True)
                    row = take_turns(name, case, options, package)
                if row:
                    rows.append(row)
                    print(row.line(), flush=True)
    slower = [row for row in rows if row.is_slower(options.by)]
    for row in slower:
        median = np.median(getattr(row, options.by))
        print(f"slower by {median - 1:.0%}: {row.contender}, {' '.join(map(str, row.case))}")
    if not rows:
        raise ValueError("`--against` needs a contender that can run; see above")
    if not slower:
        print(f"nothing became slower by more than {LIMIT - 1:.0%}")
    return rows, slower
