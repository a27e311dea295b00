"""The report of `vit-keras check` as text."""

from collections.abc import Iterator
from typing import Any

from vit_keras.tasks import KINDS

SHOWN = 40  # classes whose counts are printed


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The lines of a report, as `Review.facts` and the command make it."""
    yield report["dataset"]
    if "pictures" in report:
        yield from _table(report["pictures"], KINDS[report["kind"]], report["images"])
    if "numbers" in report:
        yield from _numbers(report["numbers"])
    if "held_out_by" in report:
        yield report["held_out_by"]
    if "imbalance" in report:
        ratio, row = report["imbalance"], KINDS[report["kind"]]
        times = f"the largest {row.one} has {ratio:.1f} times the pictures of the smallest"
        yield f"balance: {f'the {row.several} have equal sizes' if ratio == 1 else times}"
    if "width" in report:
        spread = lambda name: " / ".join(f"{value:g}" for value in report[name].values())
        yield f"width: {spread('width')} pixels (least / median / most)"
        yield f"height: {spread('height')} pixels"
        yield f"width / height: {spread('aspect')}"
        yield "kinds: " + ", ".join(f"{n:,} {kind}" for kind, n in report["kinds"].items())
    if report.get("not_pictures"):
        counts = ", ".join(f"{n:,} {suffix}" for suffix, n in report["not_pictures"].items())
        yield f"files that are not pictures: {counts}"
    for kind in ("warning", "problem"):
        yield from (f"{kind}: {text}" for text in report[f"{kind}s"])
    if not report["problems"]:
        yield (
            "It can be trained on."
            if not report["warnings"]
            else ("It can be trained on; see the warnings above.")
        )


def _numbers(by_split):
    """The range of each number, in a line for each split."""
    for split, numbers in by_split.items():
        for name, row in numbers.items():
            figures = [f"{row[key]:g}" for key in ("min", "median", "max") if key in row]
            text = f"{' / '.join(figures)} (least / median / most)" if figures else "unknown"
            yield f"{split} {name}: {text}, known of {row['known']:,}"


def _table(counts, kind, images):
    """The number of pictures of each class, in a column for each split."""
    classes = list(next(iter(counts.values())))
    shown = classes if len(classes) <= SHOWN else [*classes[: SHOWN - 1], "..."]
    rows = {name: [of.get(name, "") for of in counts.values()] for name in shown}
    word = kind.one if len(classes) == 1 else kind.several
    rows[f"{len(classes)} {word}"] = list(images.values())
    first = max(map(len, rows))
    widths = [max(len(split), 8) for split in counts]
    yield " " * first + "".join(f"  {s:>{w}}" for s, w in zip(counts, widths))
    for name, cells in rows.items():
        texts = (f"{n:,}" if isinstance(n, int) else n for n in cells)
        yield f"{name:<{first}}" + "".join(f"  {t:>{w}}" for t, w in zip(texts, widths))
