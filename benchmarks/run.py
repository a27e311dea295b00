"""Ours and its peers on the same work, and the largest product of their frameworks.

    python benchmarks/run.py --backend torch --size S,B --mode train,infer --precision fp32,bf16

Every contender has a process of its own; they take turns, so that what else the machine does falls
on all alike. Ratios are medians over the pairs of neighbouring turns, in images per second; those
by CPU time tell more where other work shares the cores. It uses the GPU that the frameworks use.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import report  # noqa: E402
from benchmarks.cases import SIZES, Case  # noqa: E402
from benchmarks.contenders import CONTENDERS, environment  # noqa: E402


class Process:
    """A contender's process; `missing` says why there is none."""

    def __init__(self, name: str, case: Case):
        command = [sys.executable, "-m", "benchmarks.worker", name, json.dumps(case._asdict())]
        self.name = name
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.log}
        self.process = subprocess.Popen(
            command, text=True, env=environment(name), cwd=ROOT, **pipes
        )
        self.begun = self._answer()
        self.missing = self.begun.get("missing")

    def turn(self, steps: int) -> dict:
        """Runs `steps` steps; their seconds and the process' peak memory so far."""
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


def compare(names: list[str], case: Case, rounds: int, steps: int) -> dict:
    """By contender, what its process said when it began and at each of its turns."""
    with contextlib.ExitStack() as stack:
        processes = []
        for name in names:
            process = Process(name, case)
            stack.callback(process.close)
            if process.missing:
                print(f"{name}: not installed ({process.missing})", file=sys.stderr)
            else:
                processes.append(process)
        turns = {process.name: [] for process in processes}
        for _ in range(rounds):
            for process in processes:
                turns[process.name].append(process.turn(steps))
        return {process.name: (process.begun, turns[process.name]) for process in processes}


def names_of(options) -> list[str]:
    """Ours on the backends first, then the peers, then the products; or what was asked for."""
    if options.contenders:
        return options.contenders
    of_backend = [n for n, c in CONTENDERS.items() if c.backend in options.backend]
    return sorted(of_backend, key=lambda n: (not n.startswith("ours"), n.startswith("gemm")))


def listed(text: str) -> list[str]:
    return text.split(",")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--backend", type=listed, default=["tensorflow", "jax", "torch"])
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, help="in place of --backend")
    parser.add_argument("--size", type=listed, default=["S"], help=",".join(SIZES))
    parser.add_argument("--mode", type=listed, default=["train", "infer"])
    parser.add_argument("--precision", type=listed, default=["fp32"], help="fp32,bf16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=1, help="steps a turn")
    parser.add_argument("--out", type=pathlib.Path, help="writes OUT.json and OUT.png")
    options = parser.parse_args()
    rows = []
    print(report.HEAD)
    for size in options.size:
        for mode in options.mode:
            for precision in options.precision:
                case = Case(size, mode, precision, options.batch)
                found = compare(names_of(options), case, options.rounds, options.steps)
                made = report.rows(found, case, options.steps)
                print(report.lines(made), flush=True)
                rows += made
    if options.out:
        record = {"machine": report.machine(), "rows": rows}
        options.out.with_suffix(".json").write_text(json.dumps(record, indent=1))
        report.plot(rows, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
