"""Reviews a data set before training: problems, warnings, facts, and its first images."""

import collections
import dataclasses
import itertools
import math
import os
from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np

from vit_keras.data.dataset import Dataset, Split
from vit_keras.data.depth import viewable
from vit_keras.data.files import Layout
from vit_keras.data.labels import LABEL_KINDS
from vit_keras.data.pillow_images import pillow_image
from vit_keras.data.survey import Pair, Picture
from vit_keras.support.annotated import listed
from vit_keras.support.command_line import on_one_line
from vit_keras.support.figures import drawable, font_of, is_latin
from vit_keras.support.tasks import CLASSES, KINDS, Task

SKEWED = 3.0  # ratio of the largest class to the smallest
FEW = 10  # training pictures per class
UNKNOWN = 0.5  # share of unknown values that deserves a warning
LINES = 10  # shown in a warning
# Pictures of unsupported kinds; most need one command or one export to become readable.
UNSUPPORTED = (
    *(".jxl", ".jp2", ".j2k", ".psd", ".svg", ".tga", ".ppm", ".pgm", ".pbm", ".ico", ".eps"),
    *(".pdf", ".raw", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2", ".xcf"),
)
SIDE = 112  # pixels on a contact sheet: smaller images are enlarged by an integer factor
CAPTION = 18  # pixels below an image
GAP = 6


@dataclasses.dataclass
class Review:
    """The findings about a data set.

    Attributes:
        problems: Why it cannot be trained on.
        warnings: What may spoil the result.
        facts: Numbers and names by topic, in JSON types.
    """

    problems: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def warn(self, names: Sequence[str], what: str, advice: str = "") -> None:
        """Adds a warning about some names, unless there are none."""
        if names:
            self.warnings.append(f"{what}: {listed(map(on_one_line, names))}{advice}")


def review_files(review: Review, layout: Layout) -> None:
    """Adds the findings from the names of a folder's files."""
    unsupported = [path for path in layout.others if path.lower().endswith(UNSUPPORTED)]
    others = set(layout.others).difference(unsupported)
    suffixes = collections.Counter(os.path.splitext(p)[1].lower() or "no suffix" for p in others)
    review.facts |= {
        "unsupported": unsupported,
        "not_pictures": dict(sorted(suffixes.items())),
        "in_no_class": layout.loose,
        "unused_folders": layout.unused,
    }
    loose = layout.classes and layout.loose
    splits = f". The splits are {', '.join(layout.roots)}"
    review.warn(unsupported, "unsupported pictures are left out", ". Convert them to JPEG or PNG")
    review.warn(loose, "pictures in no folder of a class are left out", ". Move them into one")
    review.warn(layout.unused, "folders that are no splits are left out", splits)


def review_counts(review: Review, counts: dict[str, dict[str, int]]) -> None:
    """Adds the findings from the numbers of pictures.

    Args:
        review: The review to add to.
        counts: The numbers by split, training images first, and by class.
    """
    (_, train), *held_out = counts.items()
    review.facts |= {"classes": list(train), "pictures": counts}
    ranked = sorted(train, key=train.__getitem__)
    least, most = ranked[0], ranked[-1]
    if train[least]:
        ratio = train[most] / train[least]
        review.facts["imbalance"] = round(ratio, 3)
        if ratio >= SKEWED:
            review.warnings.append(
                f"imbalance: {most!r} has {ratio:.1f} times the pictures of {least!r} "
                f"({train[most]:,} and {train[least]:,}). Add pictures of the small classes, "
                "and judge by the accuracy of each class, which `vit-keras evaluate` prints"
            )
    few = [name for name in ranked if train[name] < FEW]
    review.warn(few, f"classes with fewer than {FEW} training pictures", ". Add pictures")
    for split, count in held_out:
        what = f"classes without pictures in {split!r}, whose accuracy stays unknown"
        review.warn([name for name in count if not count[name]], what)


def review_labels(review: Review, dataset: Dataset, splits: dict[str, Split]) -> None:
    """Adds the findings from the labels of a data set.

    Args:
        review: The review to add to: the kind of the labels, the pictures of each split, and
            statistics of labels and numbers.
        dataset: The data set.
        splits: Its splits, training images first.

    Example:
        ```python
        review = data.Review()
        dataset = data.load("table:ages.csv", channels=3)
        data.review_labels(review, dataset, dataset.splits)
        review.facts["numbers"]["train"]["age"]  # {"known": 600, "min": 18.0, ...}
        ```
    """
    kind, names = dataset.kind, dataset.class_names
    review.facts |= {"kind": kind, "images": {name: len(split) for name, split in splits.items()}}
    review.facts["notes"] = [*filter(None, [dataset.held_out_by]), *dataset.notes]
    review.warnings += spoilers(dataset, splits)
    folded = collections.Counter(map(str.casefold, names))
    alike = [name for name in names if folded[name.casefold()] > 1]
    rename = ". Rename one of them, or join them: some systems take them for one folder"
    review.warn(alike, f"{kind} whose names differ only in upper and lower case", rename)
    if kind not in ("labels", "numbers"):
        return
    describe = _describe_labels if kind == "labels" else _describe_numbers
    review.facts[kind] = {name: describe(split.labels, names) for name, split in splits.items()}
    labels = next(iter(splits.values())).labels  # training pictures, (N, K)
    unknown = np.isnan(labels).mean(axis=0) > UNKNOWN
    what = f"{kind} that are unknown for more than half of the training pictures"
    review.warn(list(compress(names, unknown)), what, ". They are learned from the others alone")


def spoilers(dataset: Dataset, splits: dict[str, Split]) -> list[str]:
    """Says what may spoil the results on some splits: shared groups, and constant numbers."""
    review = Review(warnings=[*dataset.warnings])
    groups = {name: {*(split.groups or ())} - {""} for name, split in splits.items()}
    for one, other in itertools.combinations(groups, 2):
        what = f"groups in {one!r} and in {other!r}, so that the measured result is too good"
        review.warn(sorted(groups[one] & groups[other]), what)
    for name, split in splits.items() if dataset.kind == "numbers" else ():
        same = [len(np.unique(values[~np.isnan(values)])) < 2 for values in split.labels.T]
        what = f"numbers that are the same in all of {name!r}, which have no R²"
        review.warn(list(compress(dataset.class_names, same)), what, ". Leave them out")
    return review.warnings


def _describe_labels(labels, names):
    present = np.nansum(labels, axis=1)
    return {
        "with_none": int((present == 0).sum()),
        "mean_per_picture": round(float(present.mean()), 3),
        "unknown": dict(zip(names, np.isnan(labels).sum(axis=0).tolist())),
    }


def _describe_numbers(labels, names):
    known = {name: v[~np.isnan(v)].astype("float64") for name, v in zip(names, labels.T)}
    return {
        name: {"known": len(values)} | (_figures(values, np.std) if len(values) else {})
        for name, values in known.items()
    }


def _figures(values, *more):
    figures = (np.min, np.median, np.max, *more)
    return {function.__name__: round(function(values).item(), 6) for function in figures}


def review_pictures(review: Review, pictures: Sequence[Picture], stop: bool) -> None:
    """Adds the findings from the pictures; `stop` says whether an unreadable one stops a run."""
    review.facts["unreadable"] = errors = {p.name: p.error for p in pictures if p.error}
    if errors:
        stops = "stops a run. Repair or remove them, or set data.on_corrupt to skip"
        head = f"{len(errors):,} unreadable, which {stops if stop else 'the next picture replaces'}"
        texts = review.problems if stop else review.warnings
        texts.append(_block(f"{head}:", [*errors.values()]))
    readable = [picture for picture in pictures if not picture.error]
    left = {(p.split, p.class_name) for p in readable}
    is_one = review.facts.get("kind", "classes") == "classes"  # others have sets of classes
    lost = sorted({(p.split, p.class_name) for p in pictures} - left) if is_one else []
    review.problems += [f"no picture of {name!r} in {split!r} can be read" for split, name in lost]
    if readable:
        width, height = np.array([(p.width, p.height) for p in readable]).T
        sides = {"width": width, "height": height, "aspect": np.round(width / height, 3)}
        review.facts |= {name: _figures(values) for name, values in sides.items()}
        review.facts["levels"] = [
            f(p.levels[i] for p in readable) for i, f in enumerate((min, max))
        ]
        review.facts["kinds"] = dict(collections.Counter(p.kind for p in readable).most_common())


def review_sides(review: Review, splits: dict[str, Split], pictures: Sequence[Picture]) -> None:
    """Adds the pictures that have other sides than their annotations say.

    Args:
        review: The review to add to.
        splits: The splits by name.
        pictures: All their pictures, in order, from `survey_pictures`.
    """
    no_sides = lambda split: np.zeros((len(split), 2)) if split.sides is None else split.sides
    said = np.concatenate([no_sides(split) for split in splits.values()]).tolist()
    known = [(p, *of) for p, of in zip(pictures, said, strict=True) if any(of) and not p.error]
    other = {
        p.name: (p.width, p.height) == (h, w) for p, h, w in known if (p.height, p.width) != (h, w)
    }
    turned = [name for name, is_turned in other.items() if is_turned]
    what = "pictures whose annotations give their sides before they are turned upright"
    review.warn(
        turned, what, ", so their boxes lie elsewhere. Turn the files, or annotate them anew"
    )
    others = [name for name, is_turned in other.items() if not is_turned]
    what = "pictures that have other sides than their annotations say"
    review.warn(others, what, ". Their boxes are scaled; look at them with --out sheet.png")


def review_pairs(review: Review, pairs: Sequence[Pair]) -> None:
    """Adds the findings about near-duplicates."""
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
    too_high = "in two splits, so that the measured accuracy is too high: keep one of each"
    for holds, what in (
        (lambda pair: pair.leaks, too_high),
        (lambda pair: pair.conflicts, "with two labels: compare them, and keep the right one"),
        (lambda pair: not (pair.leaks or pair.conflicts), "twice in a class: keep one of each"),
    ):
        if chosen := [*filter(holds, pairs)]:
            count = len({pair.second.name for pair in chosen})
            head = f"pictures that look alike, {what} ({count:,})"
            review.warnings.append(_block(head, [*map(_line, chosen)]))


def _line(pair):
    same = "the same file" if pair.is_exact else f"{pair.distance} of 64 bits differ"
    both = (f"{p.name} ({p.split}, {p.class_name})" for p in (pair.first, pair.second))
    return on_one_line(f"{' and '.join(both)}: {same}")


def _block(head, lines):
    """Writes the first few lines below a heading, and counts the rest."""
    more = [f"and {len(lines) - LINES:,} more"] if len(lines) > LINES else []
    return "\n  ".join([head, *lines[:LINES], *more])


def count_classes(dataset: Dataset, splits: dict[str, Split]) -> dict[str, dict[str, int]]:
    """Returns the number of pictures by split and class.

    Example:
        >>> dataset = data.load("digits", channels=1)
        >>> count_classes(dataset, dataset.splits)["test"]["7"]
        36
    """
    count = LABEL_KINDS[dataset.kind].counts
    return {name: count(split.labels, dataset.class_names) for name, split in splits.items()}


def describe_splits(
    dataset: Dataset, train: Split, test: Split, dev: Split | None = None
) -> list[str]:
    """Describes the pictures and classes of a run.

    Args:
        dataset: The data set.
        train: The images that the run trains on.
        test: The images that the run is judged on.
        dev: The images that it is tuned on; None for `test`.

    Returns:
        A line with the numbers of pictures and classes, the held-out share, and the smallest and
        the largest class; and lines that say how the images were held out, what was found or
        guessed about the files, and what may spoil the result. Class sizes that are unknown without
        reading the images are left out.
    """
    kind, count = KINDS[dataset.kind], len(dataset.class_names)
    outputs = f"of {count} {kind.one if count == 1 else kind.several}"
    more = 0 if dev is None or dev is test else len(dev)
    line = (
        f"{dataset.name}: {len(train):,} pictures {outputs if count else 'without labels'}, and "
        f"{len(test):,} ({len(test) / (len(train) + more + len(test)):.1%}) held out"
    )
    line += f", and {more:,} to choose by" if more else ""
    if train.labels_are_known and count:
        (counts,) = count_classes(dataset, {"train": train}).values()
        least, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        if counts[least] == counts[most]:
            line += f"; each {kind.one} has {counts[most]:,}"
        else:
            line += f"; a {kind.one} has {counts[least]:,} ({least}) to {counts[most]:,} ({most})"
    warnings = spoilers(dataset, {"train": train, "test": test})
    notes = [*filter(None, [dataset.held_out_by]), *dataset.notes]
    return [line, *notes, *(f"warning: {text}" for text in warnings)]


def captions_of(targets: np.ndarray, class_names: Sequence[str], task: Task = CLASSES) -> list[str]:
    """Describes the targets of N images: "cat", "cat 70%, dog 30%", or "age 34".

    Args:
        targets: One-hot or mixed classes, labels, or standardized numbers, `(N, K)`.
        class_names: The K names.
        task: The kind of the targets.

    Example:
        >>> captions_of(np.array([[1.0, 0.0], [0.3, 0.7]]), ["cat", "dog"])
        ['cat', 'cat 30%, dog 70%']
    """
    kind = "labels" if task.kind == "classes" else task.kind  # mixed classes are several
    mean, std = (0.0, 1.0) if task.mean is None else (np.array(task.mean), np.array(task.std))
    return [LABEL_KINDS[kind].text(row, class_names) for row in np.asarray(targets) * std + mean]


def draw_contact_sheet(
    images: np.ndarray,
    captions: Sequence[str],
    boxes: np.ndarray | None = None,
    class_names: Sequence[str] = (),
):
    """Draws images in rows, with a line of text below each.

    Args:
        images: `(N, H, W, C)`, made viewable by `depth.viewable`.
        captions: N lines; a line wider than its image is cut.
        boxes: The objects in the images, `(N, M, 5)`: class, center x, center y, width and height
            as shares of the sides; class -1 for none.
        class_names: The names of the classes, to write beside the boxes.

    Returns:
        A `PIL.Image.Image` in RGB. Image i stands at `place(i, N, H, W)`, and is enlarged by
        `scale_of(H, W)`.

    Example:
        ```python
        images, *described = experiments.first_training_images(config)
        sheet = data.draw_contact_sheet(images, data.captions_of(*described))
        sheet.save("sheet.png")
        ```
    """
    pillow = pillow_image("Drawing a contact sheet")
    from PIL import ImageDraw

    images = viewable(images)
    count, height, width = images.shape[:3]
    scale = scale_of(height, width)
    large = images.repeat(scale, axis=1).repeat(scale, axis=2)  # (N, h, w, C)
    height, width = large.shape[1:3]
    places = [place(i, count, *images.shape[1:3]) for i in range(count)]
    right, bottom = np.max(places, axis=0) + (width + GAP, height + CAPTION + GAP)
    sheet = np.full((bottom, right, 3), 255, "uint8")
    for image, (left, top) in zip(large, places):
        sheet[top : top + height, left : left + width] = image
    picture = pillow.fromarray(sheet)
    draw = ImageDraw.Draw(picture)
    for corner, rows in zip(places, () if boxes is None else boxes):
        _draw_boxes(draw, corner, (width, height), rows[rows[:, 0] >= 0], class_names)
    for (left, top), caption in zip(places, map(drawable, captions), strict=True):
        while sum(draw.textlength(text, font=font) for text, font in _pieces(caption)) > width:
            caption = f"{caption.removesuffix('…')[:-1]}…"
        start: float = left
        for text, font in _pieces(caption):
            draw.text((start, top + height + 1), text, fill="black", font=font)
            start += draw.textlength(text, font=font)
    return picture


def _draw_boxes(draw, corner, size, rows, class_names):
    """Draws objects `(n, 5)` and their names into the image at a corner of a sheet."""
    for kind, *box in rows[:, :5].tolist():
        center, half = np.multiply(box[:2], size) + corner, np.multiply(box[2:], size) / 2
        low, high = center - half, np.maximum(center + half - 1, center - half)
        color = f"hsl({kind * 137.5 % 360:.0f}, 90%, 45%)"
        draw.rectangle((*low, *high), outline=color, width=2)
        for text, font in _pieces(drawable(class_names[int(kind)])):
            style = {"fill": "white", "stroke_fill": color, "stroke_width": 2}
            draw.text(low.tolist(), text, font=font, **style)
            low[0] += draw.textlength(text, font=font)


def _pieces(caption):
    """Splits a text into pieces, each with a font that can draw it."""
    from PIL import ImageFont

    path_of = lambda character: "" if is_latin(character) else font_of(character)
    for path, piece in itertools.groupby(caption, path_of):
        font = ImageFont.truetype(path, 13) if path else ImageFont.load_default(size=13)
        yield "".join(piece), font


def scale_of(height: int, width: int) -> int:
    """Returns the integer factor by which images are enlarged."""
    return max(1, -(-SIDE // min(height, width)))


def place(i: int, count: int, height: int, width: int) -> tuple[int, int]:
    """Returns the left and top pixel of image i of a sheet of `count` images."""
    row, column = divmod(i, math.ceil(math.sqrt(count)))
    scale = scale_of(height, width)
    return GAP + column * (width * scale + GAP), GAP + row * (height * scale + CAPTION + GAP)
