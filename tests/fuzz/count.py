"""Opens damaged, crafted and forged files by the thousand, and counts what becomes of them.

    KERAS_BACKEND=torch python -m tests.fuzz.count --damaged 300 --forged 30 --subject "timm .pth"

Each file is opened in a process that may crash, hang or take memory, which counts too. torch is
quick here, and forks. The table has a row for each kind of file. Cases that are no refusal and not
right are listed, and can be opened again with `--subject NAME --case KIND NUMBER`. The exit code is
then 1.
"""

import argparse
import collections
import json
import os
import pathlib
import resource
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator

from tests.fuzz.cases import CRASH, FINE, HANG, MEMORY, OUTCOMES, Case, Cases, Verdict
from tests.fuzz.subjects import SUBJECTS

SECONDS = 30  # of the processor, after which a case counts as a hang; valid files take up to 1
SLEEP = 600  # seconds of any clock, after which a process that waits counts as well
ADDRESS_SPACE = 6 * 2**30  # above what a process has when it starts; then MemoryError
TIMES = 4  # as much memory as the file may be taken, and what the subject says


def judged(cases: Cases, case: Case) -> Verdict:
    """The verdict of a process of its own."""
    cases.prepared(case.subject)
    source, sink = os.pipe()
    if (child := os.fork()) == 0:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(SLEEP)
        used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            verdict = cases.judge(case)
            verdict = verdict._replace(message=verdict.message[:2000])  # a pipe holds that
            os.write(sink, json.dumps(verdict).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(sink)
    with open(source) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        is_hang = os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM)
        return Verdict(HANG if is_hang else CRASH, f"status {status}")
    verdict = Verdict(*json.loads(said))
    if verdict.memory > TIMES * verdict.size + SUBJECTS[case.subject].beyond:
        message = f"{verdict.memory:,} bytes; {verdict.outcome}: {verdict.message}"
        verdict = verdict._replace(outcome=MEMORY, message=message)
    return verdict


def drawn(
    cases: Cases, names: Iterable[str], damaged: int, forged: int, seed: int
) -> Iterator[Case]:
    """The cases of each subject: damaged, crafted and forged ones."""
    for name in names:
        counts = {"damaged": damaged, "forged": forged if SUBJECTS[name].forge else 0}
        for kind, count in counts.items():
            yield from (Case(name, kind, seed * 10**6 + i) for i in range(count))
        crafted = len(cases.prepared(name)[2]) if forged else 0
        yield from (Case(name, "crafted", i) for i in range(crafted))


def table(counts: dict[tuple[str, str], collections.Counter]) -> str:
    """A row for each kind of file, and a total, in Markdown."""
    shown = [o for o in OUTCOMES if o in OUTCOMES[:6] or any(c[o] for c in counts.values())]
    rows = [["files", "", "number", *shown], ["---"] * 2 + ["---:"] * (len(shown) + 1)]
    total = sum(counts.values(), collections.Counter())
    for (name, kind), count in [*counts.items(), (("all", ""), total)]:
        rows.append([name, kind, count.total(), *(count[outcome] for outcome in shown)])
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--damaged", type=int, default=100, help="the number of damaged files of each kind")
    add("--forged", type=int, default=20, help="of forged ones; 0 leaves out crafted ones too")
    add("--seed", type=int, default=0)
    add("--subject", action="append", choices=SUBJECTS, help="all by default")
    add("--case", nargs=2, metavar=("KIND", "NUMBER"), help="opens one case alone")
    add("--log", type=pathlib.Path, help="a file for all verdicts, as JSON lines")
    options = parser.parse_args()
    names = options.subject or list(SUBJECTS)
    counts: dict = collections.defaultdict(collections.Counter)
    largest, folder = 0, tempfile.TemporaryDirectory()
    os.environ["KERAS_HOME"] = folder.name
    cases = Cases(pathlib.Path(folder.name))
    chosen: Iterable[Case] = drawn(cases, names, options.damaged, options.forged, options.seed)
    if options.case:
        chosen = [Case(name, options.case[0], int(options.case[1])) for name in names]
    for case in chosen:
        verdict = judged(cases, case)
        counts[case[:2]][verdict.outcome] += 1
        largest = max(largest, verdict.memory - TIMES * verdict.size)
        if verdict.outcome not in FINE or options.case:
            told = (*case, verdict.outcome, verdict.change, verdict.message[:300])
            print(*told, sep=" | ", flush=True)
        if options.log:
            with options.log.open("a") as log:
                log.write(json.dumps({**case._asdict(), **verdict._asdict()}) + "\n")
    print(table(counts))
    print(f"the most memory beyond {TIMES} times the file: {largest / 2**20:.0f} MiB")
    return int(any(outcome not in FINE for count in counts.values() for outcome in count))


if __name__ == "__main__":
    sys.exit(main())
