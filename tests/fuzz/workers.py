"""Processes that open damaged files, which may crash or hang, and are replaced then."""

import contextlib
import multiprocessing
import os
import pathlib
import resource
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator

from tests.fuzz.cases import Case, Cases, Verdict
from tests.fuzz.outcomes import CONSTANT_BYTES, CRASH, HANG, MEMORY, TIMES

SECONDS = 30  # of the processor, after which a case counts as a hang; valid files take up to 1
SLEEP = 600  # seconds of any clock, after which a process that waits counts as well
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
        start, began = self.used_seconds, time.monotonic()
        while not self.pipe.poll(1):
            if self.used_seconds - start > SECONDS or time.monotonic() - began > SLEEP:
                self.end()
                return Verdict(HANG, f"no answer after {SECONDS} s of the processor")
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join()
            return Verdict(CRASH, f"exit status {self.process.exitcode}")

    @property
    def used_seconds(self) -> float:
        """The time that the processor has worked for it, whatever else the machine does."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

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
        os.environ["KERAS_HOME"] = folder
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
