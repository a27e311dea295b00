"""Boxes: where the objects of a picture are, and how they change with the picture."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_keras.data.labels import sorted_names
from vit_keras.data.pillow_images import picture_sides
from vit_keras.data.threads import read_ahead
from vit_keras.data.transforms import Window
from vit_keras.support.annotated import is_number, listed

CROWD, DIFFICULT = 1, 2  # flags of objects that are not learned; 0 for all others
SLACK = 1e-3  # of a side, by which rounded boxes may leave a picture
LARGEST_SHARE = 1.5  # no box in pixels has smaller numbers alone
FLAGGED = {CROWD: ("iscrowd", "isgroupof"), DIFFICULT: ("difficult", "isdifficult")}  # columns
AHEAD = 256  # pictures to read in advance

OVERLAPS, ROUNDS, TRIES = (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1), 10, 40  # of `RandomIoUCrop`
Part = tuple[float, float, float, float]  # top, left, height, and width as shares of the sides
WHOLE: Part = (0.0, 0.0, 1.0, 1.0)


class Annotated(NamedTuple):
    """What an annotation file says about a picture.

    Attributes:
        file: The picture, relative to the folder of the data set.
        source: The annotation file.
        split: The split of the picture.
        objects: For each object the name of its class, left, top, right, bottom, and flag.
        sides: The height and width in the unit of the objects, (1, 1) for shares; None if only the
            picture says.
    """

    file: str
    source: str
    split: str
    objects: Sequence[tuple[Any, ...]]
    sides: tuple[float, ...] | None = (1, 1)


def known_sides(*sides: float) -> tuple[float, ...] | None:
    """Returns the height and width that an annotation gives, or None if it gives none."""
    return sides if all(is_number(side) and side > 1 for side in sides) else None


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


class Cleaned(NamedTuple):
    """The boxes of a data set, the names of the classes, and what there is to say about them."""

    boxes: Boxes
    names: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def clean(
    pictures: Sequence[Annotated],
    read: Callable[[int], bytes],
    names: Sequence[str] = (),
    is_sure: bool = True,
) -> Cleaned:
    """Cuts boxes at the edges of their pictures, and leaves out those without an area.

    Args:
        pictures: What is annotated.
        read: Returns the bytes of the picture with a number, whose annotation gives no sides.
        names: The names of the classes; empty to sort those of the objects.
        is_sure: Whether boxes end with right and bottom. If not, these may be width and height,
            unless more boxes lie in their pictures otherwise.
    """
    kinds = [row[0] for p in pictures for row in p.objects]
    names = tuple(names or sorted_names({*kinds}))
    numbers = {name: number for number, name in enumerate(names)}
    owner = np.repeat(np.arange(len(pictures)), [len(p.objects) for p in pictures])
    rows = np.array([row[1:] for p in pictures for row in p.objects], "float64").reshape(-1, 5)
    corners, notes = rows[:, :4], []
    unit = np.array([p.sides or (0, 0) for p in pictures], "float64").reshape(-1, 2)
    if (unit != 1).any() and len(rows) and corners.max() < LARGEST_SHARE:
        unit[:] = 1
        notes.append("boxes are shares of the sides, since all their numbers are small")
    unknown = np.flatnonzero((unit < 1).any(axis=1))
    unit[unknown] = [*read_ahead(lambda i: _sides(read, i), unknown, AHEAD)] or 0
    limits = np.tile(unit[:, ::-1], 2)[owner]  # (T, 4): width, height, width, height
    if not is_sure and len(rows):
        ends = corners[:, :2] + corners[:, 2:]
        fits = (ends <= limits[:, :2] * (1 + SLACK)).all(axis=1).mean()
        if are_sizes := fits >= (corners[:, 2:] > corners[:, :2]).all(axis=1).mean():
            corners = np.concatenate([corners[:, :2], ends], axis=1)
        ends = "width and height" if are_sizes else "right and bottom"
        notes.append(f"boxes are left, top, {ends}, since most lie in their pictures that way")
    classes = np.array([numbers[kind] for kind in kinds], "float32")
    shares = np.column_stack([classes, corners / limits, rows[:, 4]])
    return _cleaned(pictures, names, owner, shares, notes)


def _cleaned(pictures, names, owner, rows, notes) -> Cleaned:
    """Makes the boxes of rows `(T, 6)`: class, left, top, right, bottom, and flag."""
    outside = (abs(rows[:, 1:5] - 0.5) > 0.5 + SLACK).any(axis=1)
    low, high = rows[:, 1:3].clip(0, 1), rows[:, 3:5].clip(0, 1)
    columns = rows[:, :1], (low + high) / 2, high - low, rows[:, 5:]
    rows = np.concatenate(columns, axis=1).astype("float32")
    empty = (rows[:, 3:5] <= 0).any(axis=1)
    _, first = np.unique(np.column_stack([owner, rows]), axis=0, return_index=True)
    again = ~empty & ~np.isin(np.arange(len(rows)), first)
    kept = ~empty & ~again
    if len(rows) and not kept.any():
        raise ValueError(
            f"Boxes must have an area in their pictures. Received: {len(rows):,} boxes "
            f"without one, in {_named(pictures, owner)}. YOLO's coordinates are fractions of "
            "the picture's sides; other formats use pixels"
        )
    objects = np.split(rows[kept], np.searchsorted(owner[kept], np.arange(1, len(pictures))))
    warnings = [
        f"{what} ({marked.sum():,}), in {_named(pictures, owner[marked])}"
        for what, marked in (
            ("boxes that leave their picture are cut at its edge", outside & ~empty),
            ("boxes without an area in their picture are left out", empty),
            ("boxes that are there twice count once", again),
        )
        if marked.any()
    ]
    flagged = (rows[kept, 5] > 0).sum()
    notes.append(
        f"{kept.sum():,} objects, {flagged:,} of them crowds or difficult and not learned; "
        f"{sum(not len(of) for of in objects):,} of {len(pictures):,} pictures have none"
    )
    said = [p.sides if p.sides not in (None, (1, 1)) else (0, 0) for p in pictures]
    sources = [picture.source for picture in pictures]
    boxes = Boxes(objects, max(1, *map(len, objects)), np.array(said), sources)
    return Cleaned(boxes, names, tuple(notes), tuple(warnings))


def _sides(read, index) -> tuple[int, int]:
    """Returns the sides in a picture's header; any sides if it is unreadable, which a run says."""
    try:
        return picture_sides(read(index))
    except (OSError, ValueError):
        return (1, 1)


def _named(pictures, owner):
    return listed(dict.fromkeys(pictures[i].file for i in owner))


def object_window(sides: tuple[int, int], label: np.ndarray, rng: np.random.Generator) -> Window:
    """Draws a part of a picture around objects, as SSD and torchvision's `RandomIoUCrop` do.

    The part has 30 to 100 % of each side, and a ratio of sides up to 2. It holds the center of an
    object, and of the objects with centers in it, one has at least a drawn IoU with the part. If no
    draw fits, or the drawn IoU is 1, it is the whole picture.

    Args:
        sides: The picture's height and width in pixels.
        label: The objects, `(M, 6)`.
        rng: Draws the part.
    """
    rows = label[(label[:, 0] >= 0) & (label[:, 5] == 0)]
    centers, lengths = rows[:, 2:0:-1] * sides, rows[:, 4:2:-1] * sides  # (n, 2): y, x
    for least in rng.choice(OVERLAPS, ROUNDS) if len(rows) else (1,):
        if least == 1:
            break
        share, place = rng.random((2, TRIES, 1, 2))
        size = (sides * (0.3 + 0.7 * share)).astype(int)
        corner = (place * (sides - size)).astype(int)
        inside = ((centers > corner) & (centers < corner + size)).all(axis=-1)  # (TRIES, n)
        high = np.minimum(centers + lengths / 2, corner + size)
        shared = (high - np.maximum(centers - lengths / 2, corner)).clip(0).prod(axis=-1)
        overlaps = shared >= least * (lengths.prod(axis=-1) + size.prod(axis=-1) - shared)
        fits = (inside & overlaps & (2 * size >= size[..., ::-1]).all(axis=-1)).any(axis=-1)
        if fits.any():
            top, left, height, width = np.hstack([corner, size])[fits.argmax()].ravel().tolist()
            return top, left, height, width
    return 0, 0, *sides


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
