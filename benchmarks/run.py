"""Ours and its peers on the same work: `python -m benchmarks.run --size S --mode train`.

Every contender has a process of its own; they take turns, so that what else the machine does falls
on all alike. What is printed are medians of ratios of neighbouring turns, in images per second.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile

from benchmarks.contenders import CONTENDERS, Case, environment


class Process:
    """A contender's process; `missing` says why there is none."""

    def __init__(self, name: str, case: Case):
        command = [sys.executable, "-m", "benchmarks.worker", name, json.dumps(case._asdict())]
        self.name = name
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.log}
        self.process = subprocess.Popen(command, text=True, env=environment(name), **pipes)
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


def compare(names: list[str], case: Case, rounds: int, steps: int) -> list[dict]:
    """Rows of what each contender took; the first is the one that the others are set against."""
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
        return [_row(process, turns, case, steps) for process in processes]


def _row(process, turns, case, steps):
    seconds = [turn["seconds"] / steps for turn in turns[process.name]]
    first = next(iter(turns.values()))
    ratios = sorted(s / (o["seconds"] / steps) for o, s in zip(first, seconds))
    return {
        "contender": process.name,
        **case._asdict(),
        "step_s": statistics.median(seconds),
        "images_per_second": case.batch / statistics.median(seconds),
        "first_over_this": [ratios[0], statistics.median(ratios), ratios[-1]],
        "peak_gib": turns[process.name][-1]["peak_gib"],
        "first_step_s": process.begun["first_step_s"],
        "parameters": process.begun["parameters"],
    }


def table(rows: list[dict]) -> str:
    """Rows as Markdown."""
    lines = [
        "| contender | size | mode | precision | s a step | images/s | first ÷ this "
        "| peak GiB | first step s |",
        "|---|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for r in rows:
        low, middle, high = r["first_over_this"]
        lines.append(
            f"| {r['contender']} | {r['size']} | {r['mode']} | {r['precision']} "
            f"| {r['step_s']:.3f} | {r['images_per_second']:.2f} "
            f"| {middle:.2f} ({low:.2f} to {high:.2f}) "
            f"| {r['peak_gib']:.2f} | {r['first_step_s']:.1f} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--size", nargs="+", default=["S"])
    parser.add_argument("--mode", nargs="+", default=["train", "infer"])
    parser.add_argument("--precision", nargs="+", default=["fp32"])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--json", help="file for the rows")
    options = parser.parse_args()
    rows = []
    for size in options.size:
        for mode in options.mode:
            for precision in options.precision:
                case = Case(size, mode, precision, options.batch)
                rows += compare(options.contenders, case, options.rounds, options.steps)
    print(table(rows))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
