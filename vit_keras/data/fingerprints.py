"""Checks that a resumed run uses the data that it began with."""

import hashlib
import json
import os
import pathlib
import warnings
from typing import Any, NotRequired, TypedDict

from vit_keras.data.labels import LABEL_KINDS
from vit_keras.support.files import sha256, write_text
from vit_keras.support.json_files import read_json, with_checksums

FILE = "dataset.json"
REMEDY = "Restore it, or begin another run with another --workdir"
MOST_READ_BYTES = 2**30  # in all pictures; reading them from memory takes 3 s
IN_FILES = ("classes", "masks", "boxes")  # kinds whose labels follow from files


class Recorded(TypedDict):
    """The content of `dataset.json`."""

    classes: list[str]
    images: dict[str, dict[str, int]]
    sha256: dict[str, str]
    times: NotRequired[dict[str, str]]


def fingerprint(dataset) -> dict[str, Any]:
    """Summarizes a data set.

    Returns:
        The names of the classes; for each split, the number of images per class, and a SHA-256 of
        its files' names, sizes and bytes, and of labels that do not follow from them. A split with
        labels in its records has a single number of images, since counting by class would read all
        records. If the files have more than `MOST_READ_BYTES`, their bytes are not read; "times" is
        then a SHA-256 of the times of each split's files.
    """
    files = {
        name: [(file, path, *_status(path)) for file, path in split.files()]
        for name, split in dataset.splits.items()
        if split.files
    }
    is_read = sum(size for rows in files.values() for _, _, size, _ in rows) <= MOST_READ_BYTES
    counts, digests = {}, {}
    for name, split in dataset.splits.items():
        counts[name] = _by_class(split, dataset)
        lines = [
            f"{file} {size} {_content(path) if is_read else ''}"
            for file, path, size, _ in files.get(name, ())
        ]
        values = b"" if lines and dataset.kind in IN_FILES else split.labels.tobytes()
        digests[name] = hashlib.sha256(os.fsencode("\n".join(lines)) + values).hexdigest()
    known = {"classes": list(dataset.class_names), "images": counts, "sha256": digests}
    if is_read:
        return known
    times = {name: repr([time for *_, time in rows]) for name, rows in files.items()}
    digest = lambda text: hashlib.sha256(text.encode()).hexdigest()
    return known | {"times": {name: digest(text) for name, text in times.items()}}


def _status(path) -> tuple[int, int]:
    """Returns a file's size in bytes and modification time; (-1, 0) if it no longer exists."""
    try:
        status = os.stat(path)
    except OSError:  # deleted, or on a server
        return -1, 0
    return status.st_size, status.st_mtime_ns


def _content(path) -> str:
    try:
        return sha256(path) if os.path.isfile(path) else "no file"
    except OSError:  # a run that reads it reports that
        return "unreadable"


def check_unchanged(dataset, folder) -> None:
    """Writes `dataset.json` to a run's folder, or compares the data set with an existing one.

    Raises:
        ValueError: If classes, numbers of images, or files have changed; the message lists the
            changes. Also if `dataset.json` itself was changed.
        FileNotFoundError: If the run has checkpoints, but no `dataset.json`.

    Example:
        ```python
        dataset = data.load("folder:photos", channels=3)
        data.check_unchanged(dataset, "runs/mine")  # the first time, writes runs/mine/dataset.json
        ```
    """
    file, current = pathlib.Path(folder) / FILE, fingerprint(dataset)
    if not file.exists() and not any(file.parent.glob("checkpoints/step_*")):
        write_text(file, json.dumps(with_checksums(current), indent=1))
        return
    recorded = read_json(file, Recorded, REMEDY)
    if changes := _changes(recorded, current):
        raise ValueError(
            f"{dataset.name!r} has changed since the run in {str(folder)!r} began "
            f"({'; '.join(changes)}). Restore the data, or begin another run with another --workdir"
        )
    times = current.get("times", {})
    if doubtful := [split for split in times if times[split] != recorded["times"][split]]:
        warnings.warn(
            f"Files of {dataset.name!r} have other times than when the run in {str(folder)!r} "
            f"began ({', '.join(doubtful)}). They are too large to be compared: make sure that "
            "their content is the same",
            stacklevel=2,
        )


def recorded_classes(folder) -> list[str]:
    """Returns the classes that `check_unchanged` recorded in a run's folder.

    Raises:
        FileNotFoundError: If nothing is recorded there.
        ValueError: If the record is damaged.

    Example:
        >>> data.check_unchanged(data.load("digits", channels=1), folder)
        >>> recorded_classes(folder)[:3]
        ['0', '1', '2']
    """
    return read_json(pathlib.Path(folder) / FILE, Recorded, REMEDY)["classes"]


def _by_class(split, dataset):
    if not split.labels_are_known or not dataset.class_names:
        return {"all": len(split)}
    return LABEL_KINDS[dataset.kind].counts(split.labels, dataset.class_names)


def _changes(recorded, current):
    """Describes the differences between two fingerprints."""
    before, now = recorded["classes"], current["classes"]
    changes = [
        f"{change}: {', '.join(map(repr, names))}"
        for change, names in (
            ("classes added", [name for name in now if name not in before]),
            ("classes removed", [name for name in before if name not in now]),
        )
        if names
    ]
    if not changes and before != now:
        changes.append("classes in another order")
    for split in sorted({*recorded["images"], *current["images"]}):
        then, here = (known["images"].get(split, {}) for known in (recorded, current))
        counts = [
            f"{split}/{name}: {then.get(name, 0)} images then, {here.get(name, 0)} now"
            for name in {**then, **here}
            if then.get(name, 0) != here.get(name, 0)
        ]
        if not counts and recorded["sha256"].get(split) != current["sha256"].get(split):
            counts = [f"{split}: as many images, but other names, sizes or contents of files"]
        changes += counts
    return changes
