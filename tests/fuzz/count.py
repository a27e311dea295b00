"""Opens damaged and crafted files by the thousand, and counts what becomes of them.

    KERAS_BACKEND=torch python -m tests.fuzz.count --damaged 5000 --crafted 500

Each file is opened in a process that may crash, hang or take memory, which counts too. The table
has a row for each kind of file. Cases that are no refusal and not right are listed, and the first
of each kind can be opened again with `--subject NAME --case KIND NUMBER`. The exit code is then 1.
"""

import argparse
import collections
import json
import pathlib
import sys
import tempfile

import numpy as np

from tests.fuzz.cases import Case, Cases
from tests.fuzz.outcomes import FINE, OUTCOMES
from tests.fuzz.subjects import SUBJECTS
from tests.fuzz.workers import judged


def drawn(names: list[str], damaged: int, crafted: int, seed: int) -> list[Case]:
    """The cases: equally many damaged files of each kind, and a sample of the crafted ones."""
    cases = [
        Case(name, "damaged", seed * 10**6 + i)
        for k, name in enumerate(names)
        for i in range(damaged // len(names) + (k < damaged % len(names)))
    ]
    if not crafted:
        return cases
    with tempfile.TemporaryDirectory() as folder:
        prepared = Cases(pathlib.Path(folder))
        every = [
            Case(name, "crafted", i)
            for name in names
            for i in range(len(prepared.prepared(name)[2]))
        ]
    chosen = np.random.default_rng(seed).permutation(len(every))[:crafted]
    return cases + [every[i] for i in sorted(chosen)]


def table(counts: dict[tuple[str, str], collections.Counter]) -> str:
    """A row for each kind of file, and a total, in Markdown."""
    shown = [name for name in OUTCOMES if any(count[name] for count in counts.values())]
    shown = [name for name in OUTCOMES if name in shown or name in OUTCOMES[:6]]
    rows = [["files", "", "number", *shown], ["---"] * 2 + ["---:"] * (len(shown) + 1)]
    total = sum(counts.values(), collections.Counter())
    for (name, kind), count in [*counts.items(), (("all", ""), total)]:
        rows.append([name, kind, count.total(), *(count[outcome] for outcome in shown)])
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--damaged", type=int, default=5000, help="the number of damaged files")
    parser.add_argument("--crafted", type=int, default=500, help="the number of crafted files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--subject", action="append", choices=SUBJECTS, help="all by default")
    parser.add_argument("--case", nargs=2, metavar=("KIND", "NUMBER"), help="opens one case alone")
    parser.add_argument("--log", type=pathlib.Path, help="a file for all verdicts, as JSON lines")
    options = parser.parse_args(arguments)
    names = options.subject or list(SUBJECTS)
    if options.case:
        cases = [Case(name, options.case[0], int(options.case[1])) for name in names]
    else:
        cases = drawn(names, options.damaged, options.crafted, options.seed)
    counts: dict = collections.defaultdict(collections.Counter)
    largest = 0
    for case, verdict in judged(cases):
        counts[case[:2]][verdict.outcome] += 1
        largest = max(largest, verdict.memory - 4 * verdict.size)
        if verdict.outcome not in FINE or options.case:
            print(
                *case, verdict.outcome, verdict.change, verdict.message[:300], sep=" | ", flush=True
            )
        if options.log:
            with options.log.open("a") as log:
                log.write(json.dumps({**case._asdict(), **verdict._asdict()}) + "\n")
    print(table(counts))
    print(f"the most memory beyond 4 times the file: {largest / 2**20:.0f} MiB")
    return int(any(outcome not in FINE for count in counts.values() for outcome in count))


if __name__ == "__main__":
    sys.exit(main())
