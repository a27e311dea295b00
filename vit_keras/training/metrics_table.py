"""The rows of `metrics.csv` and `metrics.json`, one for each evaluation of a run."""

import csv
import io
import json
import math
import pathlib

from vit_keras.files import write_text
from vit_keras.json_files import read_json
from vit_keras.tasks import KINDS

REMEDY = "Restore it from metrics.csv beside it, or delete it to go on without its rows"
BEST = {f"val_{kind.metric}" for kind in KINDS.values()}


def read_rows(folder: pathlib.Path) -> list[dict[str, float]]:
    """Reads the rows of a run's folder; there are none before the first evaluation.

    Raises:
        ValueError: `metrics.json` is damaged.
    """
    path = folder / "metrics.json"
    rows = read_json(path, list[dict[str, float]], REMEDY) if path.exists() else []
    if any("step" not in row for row in rows):
        raise ValueError(f"{str(path)!r} is damaged (it has rows without a step). {REMEDY}")
    return rows


def write_rows(folder: pathlib.Path, rows: list[dict[str, float]]) -> None:
    """Replaces `metrics.csv` and `metrics.json` in a run's folder."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "metrics.csv", text.getvalue())
    write_text(folder / "metrics.json", json.dumps(rows, indent=1))


def best_row(rows: list[dict[str, float]]) -> dict[str, float] | None:
    """Returns the row of the highest `val_accuracy`, the earliest of equals; None without any.

    For other kinds of labels than classes, it is the highest of their own figure.
    """
    rows = [row for row in rows if BEST & set(row)]
    return max(rows, key=lambda row: row[best_name(row)], default=None)


def best_name(row: dict[str, float]) -> str:
    """Returns the name of the figure by which a row is the best."""
    return next(name for name in row if name in BEST)


def out_of_patience(rows: list[dict[str, float]], patience: int | None) -> bool:
    """Returns whether none of the last `patience` evaluations lowered the best `val_loss`."""
    losses = [row["val_loss"] for row in rows if "val_loss" in row]
    if patience is None or not losses:
        return False
    best = min(range(len(losses)), key=lambda i: (math.isnan(losses[i]), losses[i]))
    return len(losses) - 1 - best >= patience
