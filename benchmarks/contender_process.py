"""The process of one contender, from outside."""

import json
import pathlib
import subprocess
import sys
import tempfile

from benchmarks.cases import Case
from benchmarks.contenders import ROOT, environment


class Process:
    """The process of one contender.

    Args:
        name: The contender.
        case: What it runs.
        package: The folder that `vit_keras` is imported from.

    Attributes:
        start: the first answer: what building the model and its first step took.
        missing: why the contender cannot run, or None.
    """

    def __init__(self, name: str, case: Case, package: pathlib.Path = ROOT):
        # -P: what is imported follows from the environment, not from the working directory.
        command = [sys.executable, "-P", "-m", "benchmarks.worker", name]
        self.name = name
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.log}
        self.process = subprocess.Popen(
            [*command, json.dumps(case._asdict())],
            text=True,
            env=environment(name, package),
            cwd=ROOT,
            **pipes,
        )
        self.start = self._answer()
        self.missing = self.start.get("missing")

    def turn(self, steps: int) -> dict:
        """Runs `steps` steps; returns their seconds and the peak memory of the process so far."""
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise RuntimeError(f"{self.name} ended:\n{self.log.read()[-3000:]}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.log.close()
