"""Lets every system call of every save fail, and looks at what is left.

    KERAS_BACKEND=torch python -m tests.faults.sweep                   # all of it, some minutes
    KERAS_BACKEND=torch python -m tests.faults.sweep --every 20 --saves .keras checkpoint

A folder holds an old content. A save writes a new one, and call number N of it on that folder
fails, or the process is killed before it. Then the folder must hold the old content or the new
one; an error must name the file and the cause, and leave nothing else; and the same save without a
fault must end with the new content alone. torch is quick here, and forks.
"""

import argparse
import collections
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from tests.faults import shim
from tests.faults.saves import SAVES, contents, hidden
from vit_keras.commands import ERRORS
from vit_keras.support import files

OLD, NEW = 1, 2
REMOVALS = ("unlink", "rmdir")
BEGIN_EMPTY = ("download", "run folder", "embeddings")  # which are made once


def _look(folder):
    return contents(folder), hidden(folder)


class Case:
    """One save at work: its folder before, and what a save without faults leaves."""

    def __init__(self, name: str, root: pathlib.Path):
        self.name, self.save, self.root = name, SAVES[name], root
        self.before, self.folder = root / "before", root / "folder"
        self.before.mkdir(parents=True)
        if name not in BEGIN_EMPTY:
            self.save.write(self.before, OLD)
        self.old, self.kept = _look(self.before)
        self.begin()
        with shim.watching(self.folder) as self.calls:
            self.save.write(self.folder, NEW)
        self.new, self.allowed = _look(self.folder)

    def begin(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.before, self.folder)

    def problems(self, fault: str, at: int) -> tuple[str, list[str]]:
        """What happened, "old" or "new" with its kind of end, and what is wrong with it."""
        self.begin()
        end = self._killed(fault, at) if fault.startswith("kill") else self._failed(fault, at)
        error = None if isinstance(end, str) else end
        now, hidden = _look(self.folder)
        if self.old and not now:  # the disk or the process failed between two renames of a folder
            files.recover(self.folder)
            now, hidden = _look(self.folder)
        state, wrong = self._state(now)
        if end == "ended" and state != "new":
            wrong.append("ended without an error and without the new content")
        if error is not None:
            wrong += self._told(error, fault)
            hindered = self.calls[at - 1 : at] and self.calls[at - 1] in REMOVALS
            hindered = hindered or fault in ("EIO stays", "EROFS stays")  # the next save removes it
            left = {name for name in hidden - self.kept - self.allowed if not self._stays(name)}
            if left and not hindered:
                wrong.append(f"left {sorted(left)}")
        wrong += self._next(fault)
        return f"{'error' if error is not None else end}, {state}", wrong

    def _failed(self, fault, at):
        try:
            with shim.watching(self.folder, fault, at):
                self.save.write(self.folder, NEW)
        except Exception as error:
            return error
        return "ended"

    def _killed(self, fault, at):
        if (child := os.fork()) == 0:
            with shim.watching(self.folder, fault, at):
                self.save.write(self.folder, NEW)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        return "killed" if killed else "ended" if status == 0 else f"died of {status}"

    def _state(self, now):
        now, old, new = map(self._grouped, (now, self.old, self.new))
        if now == new:
            return "new", []
        if now == old:
            return "old", []
        if self.save.apart and all(now[top] in (old.get(top), new.get(top)) for top in now):
            return "some of each", []
        return "torn", [f"torn: {now}"]

    def _grouped(self, state):
        """The digests of what is directly in the folder: a file, or all files of a folder."""
        found: dict[str, dict[str, str]] = {}
        for name, digest in state.items():
            if not self._stays(name):
                found.setdefault(pathlib.Path(name).parts[0], {})[name] = digest
        return found

    def _stays(self, name):
        parts = pathlib.Path(name).parts
        return any(part.endswith(end) for part in parts for end in self.save.stays)

    def _told(self, error, fault):
        number, text, wrong = shim.FAULTS[fault][0], str(error), []
        if not isinstance(error, ERRORS):
            wrong.append(f"raised {type(error).__name__}: {text[:200]}")
        if "\n" in text:
            wrong.append(f"an error of several lines: {text[:200]!r}")
        if self.save.target not in text or os.strerror(number) not in text:
            wrong.append(f"an error without the file or the cause: {text[:200]!r}")
        if ".partial-" in text:
            wrong.append(f"an error that names a hidden file: {text[:200]!r}")
        return wrong

    def _next(self, fault):
        """The same save, without a fault: it goes on, and removes what is left."""
        try:
            self.save.write(self.folder, NEW)
        except Exception as error:
            return [f"the next save failed: {type(error).__name__}: {error}"]
        now, hidden = _look(self.folder)
        wrong = [] if now == self.new else [f"the next save ended with {sorted(now)}"]
        left = sorted(hidden - self.allowed - self.kept)
        return wrong + ([f"the next save left {left}"] if left else [])


def sweep(names, every, root, faults=tuple(shim.FAULTS)):
    """Tries each fault at every `every`-th call; returns the problems."""
    found = []
    for name in names:
        case = Case(name, root / name.replace(" ", "_"))
        kinds = collections.Counter(case.calls)
        print(f"{name}: {len(case.calls)} calls {dict(kinds)}", flush=True)
        for number, fault in enumerate(faults):
            ends: collections.Counter[str] = collections.Counter()
            for at in range(1 + number % every, len(case.calls) + 1, every):
                if fault == "kill, torn write" and case.calls[at - 1] != "write":
                    continue
                end, wrong = case.problems(fault, at)
                ends[end] += 1
                call = case.calls[at - 1]
                found += [f"{name}, {fault} at call {at} ({call}): {text}" for text in wrong]
            print(f"  {fault}: {sum(ends.values())} {dict(ends)}", flush=True)
        shutil.rmtree(case.root)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--saves", nargs="+", default=list(SAVES), choices=SAVES)
    parser.add_argument("--faults", nargs="+", default=list(shim.FAULTS), choices=shim.FAULTS)
    parser.add_argument("--every", type=int, default=1, help="try every Nth call (1)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        found = sweep(options.saves, options.every, pathlib.Path(root), options.faults)
    print("\n".join(found))
    print(f"{len(found)} problems")
    return int(bool(found))


def run_below(*arguments, **options):
    """`main` in a process with the library; returns its `CompletedProcess`."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LD_PRELOAD": shim.build(folder), "OMP_NUM_THREADS": "1"}
        environment |= {"KERAS_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-m", "tests.faults.sweep", *arguments]
        return subprocess.run(command, env=environment, **options)


if __name__ == "__main__":
    sys.exit(main() if "LD_PRELOAD" in os.environ else run_below(*sys.argv[1:]).returncode)
