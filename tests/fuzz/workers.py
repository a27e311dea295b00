"""Processes that open damaged files, which may crash or hang, and are replaced then."""

import contextlib
import multiprocessing
import os
import pathlib
import resource
import signal
import tempfile
from collections.abc import Iterable, Iterator

from tests.fuzz.cases import Case, Cases, Verdict
from tests.fuzz.outcomes import CONSTANT_BYTES, CRASH, HANG, MEMORY, TIMES

SECONDS = 60  # after which a case counts as a hang; the slowest valid file takes 1
ADDRESS_SPACE = 6 * 2**30  # above what a process has when it starts; then MemoryError


class Worker:
    """A process that takes cases one by one."""

    def __init__(self):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.recv()  # it has imported what it needs

    def judge(self, case: Case) -> Verdict:
        self.pipe.send(case)
        if not self.pipe.poll(SECONDS):
            self.end()
            return Verdict(HANG, f"no answer after {SECONDS} s")
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join()
            return Verdict(CRASH, f"exit status {self.process.exitcode}")

    @property
    def lives(self) -> bool:
        return self.process.is_alive()

    def end(self):
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()


def judged(cases: Iterable[Case]) -> Iterator[tuple[Case, Verdict]]:
    """Yields each case with its verdict."""
    worker = Worker()
    try:
        for case in cases:
            yield case, worker.judge(case)
            if not worker.lives:
                worker.end()
                worker = Worker()
    finally:
        worker.end()


def _serve(pipe):
    """Answers cases until the pipe is closed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(EOFError):
        cases = Cases(pathlib.Path(folder))
        used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pipe.send("ready")
        while True:
            pipe.send(_bounded(cases.judge(pipe.recv())))


def _bounded(verdict):
    if verdict.memory > TIMES * verdict.size + CONSTANT_BYTES:
        message = f"{verdict.memory:,} bytes for {verdict.size:,}; {verdict.outcome}: "
        return verdict._replace(outcome=MEMORY, message=message + verdict.message)
    return verdict
