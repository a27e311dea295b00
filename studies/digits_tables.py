"""Small stand-ins for the paper's data sets: scikit-learn's digits as pictures and tables on disk.

Of the 1437 training digits, 25 of each class are set aside for the transfer tasks. Those of the
classes 0 to 6 that remain are for pre-training. The 360 test digits evaluate both.
"""

import csv
import pathlib

import numpy as np
from PIL import Image

from vit_keras.data.datasets import digits
from vit_keras.files import replacing_folder

POOL = 25  # images of each class that are set aside for the tasks
SEEN, UNSEEN = range(7), range(7, 10)  # classes of pre-training, and the others
TABLES = {  # classes, and whether the training images are those set aside for the tasks
    "upstream": (SEEN, False),
    "ten": (range(10), True),
    "unseen": (UNSEEN, True),
}
UPSTREAM_IMAGES = 836  # training images of the table "upstream"


def write_tables(folder: pathlib.Path) -> dict[str, str]:
    """Writes pictures and tables to `folder`, unless it exists, and returns their names.

    The rows of a table alternate between the classes, so that the first rows of a split have
    equally many of each class.

    Returns:
        `{table: name}`, where a name such as "table:FOLDER/ten.csv" is a value for `dataset`.
    """
    if not folder.is_dir():
        with replacing_folder(folder) as new:
            _write(new)
    return {name: f"table:{folder / name}.csv" for name in TABLES}


def _write(folder):
    splits = digits()
    for split, (images, _) in splits.items():
        (folder / split).mkdir()
        for i, image in enumerate(images):
            Image.fromarray(image[..., 0]).save(folder / split / f"{i:04}.png")
    for name, (classes, for_tasks) in TABLES.items():
        with open(folder / f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("path", "label", "split"))
            for split, (_, labels) in splits.items():
                members = slice(None)
                if split == "train":
                    members = slice(POOL) if for_tasks else slice(POOL, None)
                for i in round_robin(labels, classes, members):
                    writer.writerow((f"{split}/{i:04}.png", labels[i], split))


def round_robin(labels: np.ndarray, classes, members: slice) -> list[int]:
    """Indices of images, alternating between `classes`; `members` selects from each class."""
    by_class = [np.flatnonzero(labels == label)[members] for label in classes]
    longest = max(map(len, by_class))
    return [int(indices[i]) for i in range(longest) for indices in by_class if i < len(indices)]
