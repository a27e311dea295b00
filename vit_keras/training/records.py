"""The rows of a run's metrics, one per evaluation, and its rollbacks after a NaN loss."""

import csv
import io
import json
import math
import pathlib

from vit_keras.runs import RESTORE
from vit_keras.support.checks import read_json
from vit_keras.support.files import write_text
from vit_keras.support.tasks import KINDS

BEST = {f"val_{kind.metric}" for kind in KINDS.values()}


def read_rows(folder: pathlib.Path, least: int = 0) -> list[dict[str, float]]:
    """Reads the rows from a run's folder; there are none before the first evaluation.

    Args:
        folder: The run's folder.
        least: The number of rows that the run must have written.

    Raises:
        ValueError: If `metrics.json` is damaged, or if rows are missing.
    """
    rows = _read(path := folder / "metrics.json", list[dict[str, float]], least, RESTORE)
    if any("step" not in row for row in rows):
        raise ValueError(f"{str(path)!r} is damaged (each row must have a step). {RESTORE}")
    return rows


def read_rollbacks(folder: pathlib.Path, least: int = 0) -> list[dict[str, str]]:
    """Reads `rollbacks.json` from a run's folder: for each rollback, its cause and checkpoint.

    Raises:
        ValueError: If the file is damaged, or holds fewer than `least` rollbacks.
    """
    remedy = "Restore it: the learning rate was halved once for each of its entries"
    return _read(folder / "rollbacks.json", list[dict[str, str]], least, remedy)


def _read(path, kind, least, remedy):
    entries = read_json(path, kind, remedy) if path.exists() else []
    if len(entries) < least:
        raise ValueError(
            f"{str(path)!r} must hold at least {least} entries. Received: {len(entries)}. {remedy}"
        )
    return entries


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
    """Returns the row with the highest `val_accuracy`, the earliest of equals, or None.

    For other kinds of labels, their own figure counts.
    """
    rows = [row for row in rows if BEST & set(row)]
    return max(rows, key=lambda row: row[best_name(row)], default=None)


def best_name(row: dict[str, float]) -> str:
    """Returns the name of the figure that ranks a row."""
    return next(name for name in row if name in BEST)


def out_of_patience(rows: list[dict[str, float]], patience: int | None) -> bool:
    """Returns whether none of the last `patience` evaluations lowered the best `val_loss`."""
    losses = [row["val_loss"] for row in rows if "val_loss" in row]
    if patience is None or not losses:
        return False
    best = min(range(len(losses)), key=lambda i: (math.isnan(losses[i]), losses[i]))
    return len(losses) - 1 - best >= patience


class NonFinite(FloatingPointError):
    """A loss or a variable is NaN or infinite; the message names it and the update."""
