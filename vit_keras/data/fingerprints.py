"""Whether a run that goes on still has the data that it began with."""

import hashlib
import json
import pathlib
from typing import Any

import numpy as np

from vit_keras.files import write_text

FILE = "dataset.json"


def fingerprint(dataset) -> dict[str, Any]:
    """Names of classes, images of each split by class, and a SHA-256 of its files' names and sizes.

    A split whose labels lie in its records has one number, as these are not all read for it.
    """
    counts, digests = {}, {}
    for name, split in dataset.splits.items():
        counts[name] = _by_class(split, dataset.class_names)
        lines = "\n".join(split.origin.manifest() if split.origin else map(str, split.labels))
        digests[name] = hashlib.sha256(lines.encode()).hexdigest()
    return {"classes": list(dataset.class_names), "images": counts, "sha256": digests}


def check_unchanged(dataset, folder) -> None:
    """Writes `dataset.json` into a run's folder, or compares the data set with the one there.

    Raises ValueError that names what has changed: classes, images by class, or files.
    """
    file, here = pathlib.Path(folder) / FILE, fingerprint(dataset)
    if not file.exists():
        write_text(file, json.dumps(here, indent=1))
        return
    changes = _changes(json.loads(file.read_text()), here)
    if changes:
        raise ValueError(
            f"{dataset.name!r} has changed since the run in {str(folder)!r} began "
            f"({'; '.join(changes)}). Restore it, or begin another run with another --workdir"
        )


def _by_class(split, class_names):
    if not split.labels_are_known:
        return {"all": len(split)}
    counts = np.bincount(split.labels, minlength=len(class_names))
    return dict(zip(class_names, map(int, counts)))


def _changes(there, here):
    found = [
        f"{what}: {', '.join(map(repr, names))}"
        for what, names in (
            ("classes added", [n for n in here["classes"] if n not in there["classes"]]),
            ("classes removed", [n for n in there["classes"] if n not in here["classes"]]),
        )
        if names
    ]
    if not found and here["classes"] != there["classes"]:
        found.append("classes in another order")
    for split in sorted({*there["images"], *here["images"]}):
        before, now = there["images"].get(split, {}), here["images"].get(split, {})
        differing = [
            f"{split}/{name}: {before.get(name, 0)} images then, {now.get(name, 0)} now"
            for name in {**before, **now}
            if before.get(name, 0) != now.get(name, 0)
        ]
        if not differing and there["sha256"].get(split) != here["sha256"].get(split):
            differing = [f"{split}: as many images, but other names or sizes of files"]
        found += differing
    return found
