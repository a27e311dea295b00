"""A loss that is not finite: the way back from it, and the record of it."""

import dataclasses
import json
import pathlib

from vit_keras.files import write_text


class NonFinite(FloatingPointError):
    """A loss or a state of training with NaN or infinity; says which, of which update."""


def read_rollbacks(folder: pathlib.Path) -> list[dict[str, str]]:
    """How often a run has gone back, and from what: its `rollbacks.json`."""
    path = folder / "rollbacks.json"
    return json.loads(path.read_text()) if path.exists() else []


def record_rollback(folder: pathlib.Path, cause: str, to: str) -> None:
    """Written before the run goes back, so that it keeps the lower rate if it is stopped then."""
    rollbacks = [*read_rollbacks(folder), {"cause": cause, "to": to}]
    write_text(folder / "rollbacks.json", json.dumps(rollbacks, indent=1))


def slowed(config, rollbacks: int):
    """A run's `Config` with the learning rate that it has after so many rollbacks."""
    rate = config.optimizer.learning_rate / 2**rollbacks
    optimizer = dataclasses.replace(config.optimizer, learning_rate=rate)
    return dataclasses.replace(config, optimizer=optimizer)
