"""Compares our models with other libraries', and with one large matrix product.

    python -m benchmarks.run --backend torch --size S,B --mode train,infer --precision fp32,bf16

Every contender runs in its own process. The processes take turns, so that other load on the machine
affects all of them alike. A ratio is the median over pairs of neighboring turns. Where other work
shares the cores, the ratios by CPU time are the more reliable ones. Frameworks that find a GPU use
it.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile

from benchmarks import report
from benchmarks.cases import FAMILIES, SIZES, Case
from benchmarks.contenders import CONTENDERS, environment

ROOT = pathlib.Path(__file__).parents[1]


class Process:
    """The process of one contender.

    Attributes:
        start: the first answer: what building the model and its first step took.
        missing: why the contender cannot run, or None.
    """

    def __init__(self, name: str, case: Case):
        command = [sys.executable, "-m", "benchmarks.worker", name, json.dumps(case._asdict())]
        self.name = name
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.log}
        self.process = subprocess.Popen(
            command, text=True, env=environment(name), cwd=ROOT, **pipes
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


def compare(names: list[str], case: Case, rounds: int, steps: int) -> dict:
    """`{contender: (its first answer, its answers turn by turn)}`."""
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
        return {process.name: (process.start, turns[process.name]) for process in processes}


def names_of(options) -> list[str]:
    """The contenders that `options` name, else our models, then the peers, then the products."""
    if options.contenders:
        return options.contenders
    of_backend = [n for n, c in CONTENDERS.items() if c.backend in options.backend]
    of_backend = [n for n in of_backend if not n.startswith("lora")]  # another training
    return sorted(of_backend, key=lambda n: (not n.startswith("ours"), n.startswith("gemm")))


def comma_separated(text: str) -> list[str]:
    return text.split(",")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    backends = ["tensorflow", "jax", "torch"]
    parser.add_argument("--backend", type=comma_separated, default=backends)
    parser.add_argument(
        "--contenders",
        nargs="+",
        choices=CONTENDERS,
        help="run these instead of all those of --backend",
    )
    parser.add_argument(
        "--size", type=comma_separated, default=["S"], help=",".join([*SIZES, *FAMILIES])
    )
    parser.add_argument("--mode", type=comma_separated, default=["train", "infer"])
    parser.add_argument("--precision", type=comma_separated, default=["fp32"], help="fp32,bf16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=1, help="steps per turn")
    parser.add_argument("--out", type=pathlib.Path, help="write OUT.json and OUT.png")
    options = parser.parse_args()
    rows = []
    print(report.HEAD)
    for size in options.size:
        for mode in options.mode:
            for precision in options.precision:
                case = Case(size, mode, precision, options.batch)
                answers = compare(names_of(options), case, options.rounds, options.steps)
                table = report.rows(answers, case, options.steps)
                print(report.lines(table), flush=True)
                rows += table
    if options.out:
        record = {"machine": report.machine(), "rows": rows}
        options.out.with_suffix(".json").write_text(json.dumps(record, indent=1))
        report.plot(rows, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
