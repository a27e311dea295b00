"""Boxes: where the objects of a picture are, and how they change with the picture."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from vit_keras.data.dataset import read_file
from vit_keras.data.pillow_images import picture_sides
from vit_keras.data.threads import read_ahead

CROWD, DIFFICULT = 1, 2  # flags of objects that are not learned; 0 for all others
SLACK = 1e-3  # of a side, by which rounded boxes may leave a picture
NAMED, AHEAD = 5, 256  # files that a message names, and pictures to read in advance

Part = tuple[float, float, float, float]  # top, left, height, and width as shares of the sides
WHOLE: Part = (0.0, 0.0, 1.0, 1.0)


class Annotated(NamedTuple):
    """What an annotation file says about a picture.

    Attributes:
        file: The picture, relative to the folder of the data set.
        source: The annotation file.
        split: The split of the picture.
        objects: For each object its class, left, top, right, bottom, and flag.
        sides: The height and width in the unit of the objects, (1, 1) for shares; None if only the
            picture says.
    """

    file: str
    source: str
    split: str
    objects: Sequence[Sequence[float]]
    sides: tuple[float, float] | None = (1, 1)


@dataclasses.dataclass
class Boxes:
    """The objects of N pictures; `boxes[i]` is the label of picture i, `(M, 6)` float32.

    The rows of a label hold the class, the center x, center y, width and height as shares of the
    picture's sides, and a flag. Rows of class -1 fill up.

    Attributes:
        objects: The objects of each picture, `(n, 6)` float32.
        most: M, the largest number of objects in a picture of the whole data set, at least 1.
        sides: The height and width that the annotations say, `(N, 2)`; 0 if they say none.
        sources: The annotation file of each picture.
    """

    objects: list[np.ndarray]
    most: int
    sides: np.ndarray
    sources: list[str]

    def __getitem__(self, index: int) -> np.ndarray:
        rows = self.objects[index]
        return np.concatenate([rows, np.tile(FILL, (self.most - len(rows), 1))])

    def part(self, rows: Iterable[int]) -> "Boxes":
        """Returns the boxes of the pictures with the given numbers."""
        rows = list(rows)
        take = lambda values: [values[i] for i in rows]
        return dataclasses.replace(
            self, objects=take(self.objects), sides=self.sides[rows], sources=take(self.sources)
        )

    def present(self, num_classes: int) -> np.ndarray:
        """Returns whether each picture has each class, `(N, K)` float32."""
        numbers = np.arange(num_classes)
        return np.stack([np.isin(numbers, rows[:, 0]) for rows in self.objects]).astype("float32")


FILL = np.array([-1, 0, 0, 0, 0, 0], "float32")


def clean(root: str, pictures: Sequence[Annotated]) -> tuple[Boxes, list[str], list[str]]:
    """Cuts boxes at the edges of their pictures, and leaves out those without an area.

    Args:
        root: The folder that the files of the pictures are relative to.
        pictures: What is annotated.

    Returns:
        The boxes, notes, and warnings about boxes that were changed.
    """
    counts = [len(picture.objects) for picture in pictures]
    owner = np.repeat(np.arange(len(pictures)), counts)
    rows = np.array([row for p in pictures for row in p.objects], "float64").reshape(-1, 6)
    sides = np.array([*read_ahead(lambda p: p.sides or _sides(root, p), pictures, AHEAD)], float)
    corners = rows[:, 1:5] / np.tile(sides[:, ::-1], 2)[owner]  # left, top, right, bottom
    outside = (abs(corners - 0.5) > 0.5 + SLACK).any(axis=1)
    low, high = corners[:, :2].clip(0, 1), corners[:, 2:].clip(0, 1)
    columns = rows[:, :1], (low + high) / 2, high - low, rows[:, 5:]
    boxes = np.concatenate(columns, axis=1).astype("float32")
    empty = (boxes[:, 3:5] <= 0).any(axis=1)
    _, first = np.unique(np.column_stack([owner, boxes]), axis=0, return_index=True)
    again = ~empty & ~np.isin(np.arange(len(rows)), first)
    kept = ~empty & ~again
    objects = np.split(boxes[kept], np.searchsorted(owner[kept], np.arange(1, len(pictures))))
    warnings = [
        f"{what} ({marked.sum():,}): {_named(pictures, owner[marked])}"
        for what, marked in (
            ("boxes that leave their picture are cut at its edge", outside & ~empty),
            ("boxes without an area in their picture are left out", empty),
            ("boxes that are there twice count once", again),
        )
        if marked.any()
    ]
    flags = [f"{(boxes[kept, 5] == f).sum():,} {what}" for f, what in FLAGS.items()]
    nothing = sum(not len(rows) for rows in objects)
    notes = [
        f"{kept.sum():,} objects, of which {' and '.join(flags)} are not learned; {nothing:,} of "
        f"{len(pictures):,} pictures have none"
    ]
    said = [p.sides if p.sides not in (None, (1, 1)) else (0, 0) for p in pictures]
    most = max(1, *map(len, objects))
    sources = [picture.source for picture in pictures]
    return Boxes(objects, most, np.array(said), sources), notes, warnings


def boxes_in(label: np.ndarray, *windows: Part) -> np.ndarray:
    """Returns the objects `(M, 6)` of a part of a picture: those whose centers lie in it, cut off.

    Args:
        label: The objects of the picture, `(M, 6)`.
        windows: Parts of the picture, each as shares of the one before. A part may be larger than
            the picture; a negative width mirrors it.
    """
    for top, left, height, width in (window for window in windows if window != WHOLE):
        corner, scale = np.array([left, top], "float32"), np.array([width, height], "float32")
        center, half = (label[:, 1:3] - corner) / scale, abs(label[:, 3:5] / scale) / 2
        inside = (label[:, :1] >= 0) & ((center >= 0) & (center < 1)).all(axis=1, keepdims=True)
        low, high = (center - half).clip(0, 1), (center + half).clip(0, 1)
        columns = label[:, :1], (low + high) / 2, high - low, label[:, 5:]
        label = np.where(inside, np.concatenate(columns, axis=1), FILL)
    return label


FLAGS = {CROWD: "crowds", DIFFICULT: "difficult ones"}


def _sides(root, picture) -> tuple[int, int]:
    """Returns the sides in a picture's header; any sides if it is unreadable, which a run says."""
    try:
        return picture_sides(read_file(os.path.join(root, picture.file)))
    except (OSError, ValueError):
        return (1, 1)


def _named(pictures, owner):
    names = [*dict.fromkeys(pictures[i].file for i in owner)]
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
