"""The digits as small stand-ins of the paper's data sets: pictures and tables on the disk.

Of scikit-learn's 1437 training digits, 25 of each class are set aside as the data of the tasks that
are transferred to; those of the classes 0 to 6 that are left are there to pre-train on. The 360
held-out digits judge both.
"""

import csv
import pathlib
import shutil

import numpy as np
from PIL import Image

from vit_keras.data.datasets import digits

POOL = 25  # images a class for the tasks
SEEN, UNSEEN = range(7), range(7, 10)  # classes to pre-train on, and the others
TABLES = {  # classes, and whether the training images are those of the tasks
    "upstream": (SEEN, False),
    "ten": (range(10), True),
    "unseen": (UNSEEN, True),
}
UPSTREAM_IMAGES = 836  # of upstream's training split


def write_tables(folder: pathlib.Path) -> dict[str, str]:
    """Writes the pictures and tables to `folder`, once; {name: what `dataset` calls the table}.

    Rows go round the classes, so that a slice of a split has as many of each.
    """
    if not folder.is_dir():
        partial = folder.with_name(f".partial-{folder.name}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _write(partial)
        partial.rename(folder)
    return {name: f"table:{folder / name}.csv" for name in TABLES}


def _write(folder):
    found = digits()
    for split, (images, _) in found.items():
        (folder / split).mkdir()
        for i, image in enumerate(images):
            Image.fromarray(image[..., 0]).save(folder / split / f"{i:04}.png")
    for name, (classes, tasks) in TABLES.items():
        with open(folder / f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("path", "label", "split"))
            for split, (_, labels) in found.items():
                part = slice(None)
                if split == "train":
                    part = slice(POOL) if tasks else slice(POOL, None)
                for i in round_robin(labels, classes, part):
                    writer.writerow((f"{split}/{i:04}.png", labels[i], split))


def round_robin(labels: np.ndarray, classes, part: slice) -> list[int]:
    """Images of `classes`, of each those in `part`; a first of each class, then a second …"""
    members = [np.flatnonzero(labels == label)[part] for label in classes]
    longest = max(map(len, members))
    return [int(of[i]) for i in range(longest) for of in members if i < len(of)]
