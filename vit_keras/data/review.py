"""What speaks against training on a data set, from its files and pictures."""

import collections
import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras.data.duplicates import Pair
from vit_keras.data.layout import Layout
from vit_keras.data.survey import Picture

SKEWED = 3.0  # a ratio of the largest class to the smallest
FEW = 10  # training pictures of a class
# Pictures that are not read; most of them are one command or one export away.
UNSUPPORTED = (
    *(".jxl", ".jp2", ".j2k", ".psd", ".svg", ".tga", ".ppm", ".pgm", ".pbm", ".ico", ".eps"),
    *(".pdf", ".raw", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2", ".xcf"),
)


@dataclasses.dataclass
class Review:
    """What was seen of a data set.

    Attributes:
        problems: Why it cannot be trained on.
        warnings: What may spoil the result.
        facts: Numbers and names by topic, of JSON's types.
    """

    problems: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


def review_files(review: Review, layout: Layout) -> None:
    """Adds what the names of a folder's files show."""
    unsupported = [path for path in layout.others if path.lower().endswith(UNSUPPORTED)]
    suffixes = collections.Counter(
        os.path.splitext(path)[1].lower() or "no suffix"
        for path in layout.others
        if path not in set(unsupported)
    )
    review.facts |= {
        "unsupported": unsupported,
        "not_pictures": dict(sorted(suffixes.items())),
        "in_no_class": layout.loose,
        "unused_folders": layout.unused,
    }
    if unsupported:
        review.warnings.append(
            f"unsupported pictures are left out: {listed(unsupported)}. Convert them to JPEG or PNG"
        )
    if layout.loose and layout.classes:
        review.warnings.append(
            f"pictures in no folder of a class are left out: {listed(layout.loose)}. Move "
            "them into one"
        )
    names = collections.Counter(name.casefold() for name in layout.classes)
    if alike := [name for name in layout.classes if names[name.casefold()] > 1]:
        review.warnings.append(
            f"classes whose names differ in upper and lower case alone: {listed(alike)}. Rename "
            "one of them, or join them: some systems take them for one folder"
        )
    if layout.unused:
        review.warnings.append(
            f"folders that are no splits are left out: {listed(layout.unused)}. The splits are "
            f"{', '.join(layout.roots)}"
        )


def review_counts(review: Review, counts: dict[str, dict[str, int]]) -> None:
    """Adds what the numbers of pictures show.

    Args:
        review: Is added to.
        counts: By split, training images first, and by class.
    """
    train, *held_out = counts
    of_train = counts[train]
    review.facts |= {"classes": list(of_train), "pictures": counts}
    ranked = sorted(of_train, key=lambda name: of_train[name])
    least, most = ranked[0], ranked[-1]
    if of_train[least]:
        ratio = of_train[most] / of_train[least]
        review.facts["imbalance"] = round(ratio, 3)
        if ratio >= SKEWED:
            review.warnings.append(
                f"imbalance: {most!r} has {ratio:.1f} times the pictures of {least!r} "
                f"({of_train[most]:,} and {of_train[least]:,}). Add pictures of the small classes, "
                "and judge by the accuracy of each class, which `vit-keras evaluate` prints"
            )
    if few := [name for name in ranked if of_train[name] < FEW]:
        review.warnings.append(
            f"classes with fewer than {FEW} training pictures: {listed(few)}. Add pictures"
        )
    for split in held_out:
        if absent := [name for name, count in counts[split].items() if not count]:
            review.warnings.append(
                f"classes without pictures in {split!r}, whose accuracy stays unknown: "
                f"{listed(absent)}"
            )


def review_pictures(review: Review, pictures: Sequence[Picture], stop: bool) -> None:
    """Adds what the pictures show; `stop` says whether an unreadable one stops a run."""
    unreadable = {picture.name: picture.error for picture in pictures if picture.error}
    review.facts["unreadable"] = unreadable
    if unreadable:
        list_ = review.problems if stop else review.warnings
        remedy = "which stops a run. Repair or remove them, or set data.on_corrupt to skip"
        replaced = "which the next picture replaces"
        list_.append(
            f"{len(unreadable):,} unreadable, {remedy if stop else replaced}:\n"
            + "\n".join(shortened(list(unreadable.values()), "  "))
        )
    readable = [picture for picture in pictures if not picture.error]
    lost = {(p.split, p.class_name) for p in pictures} - {(p.split, p.class_name) for p in readable}
    review.problems += [
        f"no picture of {name!r} in {split!r} can be read" for split, name in sorted(lost)
    ]
    if not readable:
        return
    size = np.array([(picture.width, picture.height) for picture in readable])
    review.facts |= {
        "width": _spread(size[:, 0]),
        "height": _spread(size[:, 1]),
        "aspect": _spread(np.round(size[:, 0] / size[:, 1], 3)),
        "kinds": dict(collections.Counter(picture.kind for picture in readable).most_common()),
    }


def review_pairs(review: Review, pairs: Sequence[Pair]) -> None:
    """Adds what near-duplicates show."""
    review.facts["duplicates"] = [
        {
            "first": pair.first.name,
            "second": pair.second.name,
            "distance": pair.distance,
            "exact": pair.is_exact,
            "splits": [pair.first.split, pair.second.split],
            "classes": [pair.first.class_name, pair.second.class_name],
        }
        for pair in pairs
    ]
    leak = lambda pair: pair.first.split != pair.second.split
    conflict = lambda pair: pair.first.class_name != pair.second.class_name
    for spoils, what in (
        (leak, "in two splits, so that the measured accuracy is too high: keep one of each"),
        (conflict, "with two labels: compare them, and keep the right one"),
        (lambda pair: not (leak(pair) or conflict(pair)), "twice in a class: keep one of each"),
    ):
        if chosen := [pair for pair in pairs if spoils(pair)]:
            names = {pair.second.name for pair in chosen}
            lines = [_line(pair) for pair in chosen]
            review.warnings.append(
                f"pictures that look alike, {what} ({len(names):,})\n"
                + "\n".join(shortened(lines, "  "))
            )


def _line(pair):
    same = "the same file" if pair.is_exact else f"{pair.distance} of 64 bits differ"
    first, second = (f"{p.name} ({p.split}, {p.class_name})" for p in (pair.first, pair.second))
    return f"{first} and {second}: {same}"


def _spread(values):
    return {
        "min": values.min().item(),
        "median": np.median(values).item(),
        "max": values.max().item(),
    }


def listed(names: Sequence[str], most: int = 5) -> str:
    """Joins names, and counts those after the first few."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def shortened(lines: Sequence[str], indent: str, most: int = 10) -> list[str]:
    """Indents lines, and counts those after the first few."""
    more = [f"and {len(lines) - most:,} more"] if len(lines) > most else []
    return [indent + line for line in [*lines[:most], *more]]
