"""The rows of a run's metrics, one per evaluation, and its rollbacks after a NaN loss."""

import csv
import dataclasses
import io
import json
import math
import pathlib

from vit_keras.support.checks import read_json
from vit_keras.support.files import write_text
from vit_keras.support.tasks import KINDS

RESTORE = "Restore it, or begin another run with another --workdir"
BEST = {f"val_{kind.metric}" for kind in KINDS.values()}


def read_rows(folder: pathlib.Path, least: int = 0) -> list[dict[str, float]]:
    """Reads the rows from a run's folder; there are none before the first evaluation.

    Args:
        folder: The run's folder.
        least: The number of rows that the run must have written.

    Raises:
        ValueError: If `metrics.json` is damaged, or if rows are missing.
    """
    path = folder / "metrics.json"
    rows = read_json(path, list[dict[str, float]], RESTORE) if path.exists() else []
    if any("step" not in row for row in rows) or len(rows) < least:
        fault = f"it must hold at least {least} rows, each with a step. Received: {len(rows)} rows"
        raise ValueError(f"{str(path)!r} is damaged ({fault}). {RESTORE}")
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


def read_rollbacks(folder: pathlib.Path, least: int = 0) -> list[dict[str, str]]:
    """Reads `rollbacks.json` from a run's folder: for each rollback, its cause and checkpoint.

    Raises:
        ValueError: If the file is damaged, or holds fewer than `least` rollbacks.
    """
    path = folder / "rollbacks.json"
    remedy = "Restore it: the learning rate was halved once for each of its entries"
    rollbacks = read_json(path, list[dict[str, str]], remedy) if path.exists() else []
    if len(rollbacks) < least:
        raise ValueError(
            f"{str(path)!r} must hold at least {least} rollbacks. Received: {len(rollbacks)}. "
            f"{remedy}"
        )
    return rollbacks


def record_rollback(folder: pathlib.Path, cause: str, checkpoint: str) -> None:
    """Adds a rollback to `rollbacks.json`.

    It is written before the run goes back, so a run that is stopped in between resumes with the
    lower learning rate.
    """
    rollbacks = [*read_rollbacks(folder), {"cause": cause, "to": checkpoint}]
    write_text(folder / "rollbacks.json", json.dumps(rollbacks, indent=1))


def halve_rate(config, rollbacks: int):
    """Returns a run's `Config` with the learning rate halved once for each rollback."""
    rate = config.optimizer.learning_rate / 2**rollbacks
    optimizer = dataclasses.replace(config.optimizer, learning_rate=rate)
    return dataclasses.replace(config, optimizer=optimizer)
