"""Checks that a resumed run has the data that it began with."""

import hashlib
import json
import pathlib
from typing import Any, TypedDict

from vit_keras.files import write_text
from vit_keras.json_files import read_json

FILE = "dataset.json"
REMEDY = "Restore it, or begin another run with another --workdir"
IN_FILES = ("classes", "masks")  # whose labels follow from names and sizes of files


class Recorded(TypedDict):
    """What `dataset.json` must hold."""

    classes: list[str]
    images: dict[str, dict[str, int]]
    sha256: dict[str, str]


def fingerprint(dataset) -> dict[str, Any]:
    """Summarizes a data set.

    Returns:
        The names of the classes; for each split, the number of images per class; and for each
        split, a SHA-256 of its files' names and sizes, and of labels other than classes. A split
        whose labels lie in its records has one number of images, since counting by class would
        read all records.
    """
    counts, digests = {}, {}
    for name, split in dataset.splits.items():
        counts[name] = _by_class(split, dataset)
        lines = "\n".join(split.origin.manifest() if split.origin else map(str, split.labels))
        values = b"" if dataset.kind in IN_FILES else split.labels.tobytes()
        digests[name] = hashlib.sha256(lines.encode() + values).hexdigest()
    return {"classes": list(dataset.class_names), "images": counts, "sha256": digests}


def check_unchanged(dataset, folder) -> None:
    """Writes `dataset.json` to a run's folder, or compares the data set with that file.

    Raises:
        ValueError: If classes, numbers of images, or files have changed. The message lists the
            changes.

    Example:
        ```python
        dataset = data.load("folder:photos", channels=3)
        data.check_unchanged(dataset, "runs/mine")  # the first time, writes runs/mine/dataset.json
        ```
    """
    file, current = pathlib.Path(folder) / FILE, fingerprint(dataset)
    if not file.exists():
        write_text(file, json.dumps(current, indent=1))
        return
    changes = _changes(read_json(file, Recorded, REMEDY), current)
    if changes:
        raise ValueError(
            f"{dataset.name!r} has changed since the run in {str(folder)!r} began "
            f"({'; '.join(changes)}). Restore the data, or begin another run with another --workdir"
        )


def _by_class(split, dataset):
    if not split.labels_are_known or not dataset.class_names:
        return {"all": len(split)}
    from vit_keras.data.label_kinds import LABEL_KINDS

    return LABEL_KINDS[dataset.kind].counts(split.labels, dataset.class_names)


def _changes(recorded, current):
    """Describes what differs between two fingerprints."""
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
        changes += _changes_of_split(split, recorded, current)
    return changes


def _changes_of_split(split, recorded, current):
    before, now = recorded["images"].get(split, {}), current["images"].get(split, {})
    changes = [
        f"{split}/{name}: {before.get(name, 0)} images then, {now.get(name, 0)} now"
        for name in {**before, **now}
        if before.get(name, 0) != now.get(name, 0)
    ]
    if not changes and recorded["sha256"].get(split) != current["sha256"].get(split):
        changes = [f"{split}: as many images, but other names or sizes of files"]
    return changes
