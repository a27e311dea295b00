"""Rollbacks: how a run continues after a loss that is not finite, and the record of it."""

import dataclasses
import json
import pathlib

from vit_keras.files import write_text
from vit_keras.json_files import read_json


class NonFinite(FloatingPointError):
    """A loss or a variable is NaN or infinite; the message names it and the update."""


def read_rollbacks(folder: pathlib.Path, least: int = 0) -> list[dict[str, str]]:
    """Reads `rollbacks.json` of a run's folder: for each rollback, its cause and checkpoint.

    Raises:
        ValueError: The file is damaged, or holds less than `least` rollbacks.
    """
    path = folder / "rollbacks.json"
    remedy = "Restore it: the learning rate was halved once for each of its entries"
    rollbacks = read_json(path, list[dict[str, str]], remedy) if path.exists() else []
    if len(rollbacks) < least:
        raise ValueError(
            f"{str(path)!r} must hold {least} rollbacks at least. Received: {len(rollbacks)}. "
            f"{remedy}"
        )
    return rollbacks


def record_rollback(folder: pathlib.Path, cause: str, checkpoint: str) -> None:
    """Adds a rollback to `rollbacks.json`.

    It is written before the run goes back, so that a run which is stopped in between resumes with
    the lower learning rate.
    """
    rollbacks = [*read_rollbacks(folder), {"cause": cause, "to": checkpoint}]
    write_text(folder / "rollbacks.json", json.dumps(rollbacks, indent=1))


def halve_rate(config, rollbacks: int):
    """Returns a run's `Config` with the learning rate halved once for each rollback."""
    rate = config.optimizer.learning_rate / 2**rollbacks
    optimizer = dataclasses.replace(config.optimizer, learning_rate=rate)
    return dataclasses.replace(config, optimizer=optimizer)
