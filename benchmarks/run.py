"""Compares our models with other libraries', with a matrix product, and with another revision.

    python -m benchmarks.run --backend torch --size S,B --mode train,infer --precision fp32,bf16
    python -m benchmarks.run --size Ti --batch 1,16 --tokens 196,1024
    python -m benchmarks.run --family DINOv2-S/14 --contenders ours-torch timm
    python -m benchmarks.run --augment
    python -m benchmarks.run --size Ti --augment --against HEAD~1

Every contender runs in its own process. The processes take turns, so that other load on the machine
affects all of them alike. A ratio is the median over pairs of neighboring turns. Where other work
shares the cores, the ratios by CPU time are the more reliable ones. Frameworks that find a GPU use
it.

With `--against`, the exit code is 1 if something became slower by more than 5 %.
"""

import argparse
import contextlib
import json
import pathlib
import sys
from collections.abc import Callable, Container

from benchmarks import cases, report, revisions
from benchmarks.cases import AUGMENTATION, FAMILIES, MODES, SIZES, Case
from benchmarks.contender_process import Process
from benchmarks.contenders import CONTENDERS, names_of

BACKENDS = ("tensorflow", "jax", "torch")
PRECISIONS = ("fp32", "bf16")


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


def names_from(table: Container[str]) -> Callable[[str], list[str]]:
    """A type of argparse: names of a table, separated by commas."""

    def names(text: str) -> list[str]:
        if unknown := [name for name in text.split(",") if name not in table]:
            message = f"takes {', '.join(table)}, separated by commas. Received: "
            raise argparse.ArgumentTypeError(message + ", ".join(unknown))
        return text.split(",")

    return names


def counts(text: str) -> list[int]:
    """A type of argparse: positive integers, separated by commas."""
    numbers = [int(number) if number.isdecimal() else 0 for number in text.split(",")]
    if min(numbers) < 1:
        message = f"takes positive numbers, separated by commas. Received: {text}"
        raise argparse.ArgumentTypeError(message)
    return numbers


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--backend", type=names_from(BACKENDS), default=BACKENDS, help=",".join(BACKENDS))
    only = "run these instead of all those of --backend"
    add("--contenders", nargs="+", choices=CONTENDERS, help=only)
    add("--size", type=names_from(SIZES), help=f"models of the paper (S): {','.join(SIZES)}")
    add("--family", type=names_from(FAMILIES), help=f"other models: {','.join(FAMILIES)}")
    pixels = "image sizes with about so many patches (224 x 224 pixels)"
    add("--tokens", type=counts, default=(), metavar="N", help=pixels)
    add("--mode", type=names_from(MODES), default=MODES, help=",".join(MODES))
    add("--precision", type=names_from(PRECISIONS), default=["fp32"], help="fp32,bf16")
    add("--batch", type=counts, default=[16], metavar="N", help="images a step (16)")
    add("--augment", action="store_true", help="time the augmentation of training images")
    add("--rounds", type=int, default=7)
    add("--steps", type=int, help="steps a turn (1; with --against, for half a second)")
    add("--against", metavar="REV", help="compare with the package in another git revision")
    by = "with --against, what counts as time (cpu; on a GPU, take clock)"
    add("--by", choices=("cpu", "clock"), default="cpu", help=by)
    add("--out", type=pathlib.Path, help="write OUT.json and, without --against, OUT.png")
    return parser


def cases_of(options: argparse.Namespace) -> list[Case]:
    """What the options ask for. S is measured where they name neither models nor augmentation."""
    models = [*(options.size or ()), *(options.family or ())]
    if not models and not options.augment:
        models = ["S"]
    chosen = (options.mode, options.precision, options.batch, options.tokens)
    return [*cases.every(models, *chosen), *([AUGMENTATION] if options.augment else [])]


def against_peers(options: argparse.Namespace) -> list[dict]:
    """Compares our models with the peers, and prints and returns the rows of a table."""
    rows = []
    print(report.HEAD)
    for case in cases_of(options):
        names = [n for n in options.contenders or () if CONTENDERS[n].runs(case)]
        names = names or names_of(case, options.backend)
        steps = options.steps or 1
        table = report.rows(compare(names, case, options.rounds, steps), case, steps)
        print(report.lines(table), flush=True)
        rows += table
    return rows


def main() -> int:
    options = make_parser().parse_args()
    slower = []
    if options.against:
        compared, slower = revisions.compare(cases_of(options), options)
        rows = [row.as_dict() for row in compared]
    else:
        rows = against_peers(options)
    if options.out:
        record = {"machine": report.machine(), "rows": rows}
        options.out.with_suffix(".json").write_text(json.dumps(record, indent=1))
        if not options.against:
            report.plot(rows, options.out.with_suffix(".png"))
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
