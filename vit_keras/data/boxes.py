"""Boxes: the files of YOLO, COCO and Pascal VOC, and how boxes change with their picture."""

import collections
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from vit_keras.config.parsing import read_yaml
from vit_keras.data.cropping import Part, Window
from vit_keras.data.dataset import Source, split_in
from vit_keras.data.labels import YES_OR_NO, Labels, as_number, sorted_names
from vit_keras.data.picture_files import picture_sides
from vit_keras.data.picture_paths import PictureFiles, expand_argument, is_folder, is_junk
from vit_keras.support.checks import is_number, is_text, listed, read_json, short
from vit_keras.support.files import read_bounded, read_lines
from vit_keras.support.machine import read_ahead

CROWD, DIFFICULT = 1, 2  # flags of objects that are not learned; 0 for all others
SLACK = 1e-3  # fraction of a side by which rounded boxes may exceed a picture
LARGEST_SHARE = 1.5  # if all numbers are smaller, they are not pixels
FLAGGED = {CROWD: ("iscrowd", "isgroupof"), DIFFICULT: ("difficult", "isdifficult")}  # columns
OVERLAPS, ROUNDS, TRIES = (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1), 10, 40  # as in `RandomIoUCrop`
WHOLE: Part = (0.0, 0.0, 1.0, 1.0)


class Annotated(NamedTuple):
    """What an annotation file says about a picture.

    Attributes:
        file: The picture, relative to the folder of the data set.
        source: The annotation file.
        split: The split of the picture.
        objects: For each object, the name of its class, four numbers, and its flag; anything
            else that a file has in these places is refused later.
        sides: The height and width in the unit of the objects, (1, 1) for fractions. If they are
            not two numbers of at least 1, the sides of the picture are used.
    """

    file: str
    source: str
    split: str
    objects: Sequence[tuple[Any, ...]]
    sides: Sequence[Any] = (1, 1)


FILL = np.array([-1, 0, 0, 0, 0, 0], "float32")  # a row without an object


def with_boxes(
    source: Source,
    root: str,
    pictures: Sequence[Annotated],
    names: Sequence[str] = (),
    form: str = "corners",
) -> Source:
    """Adds each picture's boxes and the names of their classes to a source.

    A label is `(M, 6)` float32, where M is the largest number of objects in a picture of the data
    set, at least 1. Its rows hold the class, the center x, center y, width and height as fractions
    of the picture's sides, and a flag; rows of class -1 are padding. Boxes are cut at the edges of
    their pictures, and those without an area are left out.

    Args:
        source: The pictures.
        root: The folder of the annotation files.
        pictures: What is annotated.
        names: The names of the classes; empty to sort those of the objects.
        form: The numbers of a box: left, top, right and bottom for "corners"; left, top, width and
            height for "sizes"; and center x, center y, width and height for "centers". With
            "either", they are sizes, unless more boxes are valid as corners.

    Raises:
        ValueError: If an object has an unknown class or a number that is not finite, or if no box
            has an area.
    """
    _check_objects(pictures, {*names})
    names = tuple(names or sorted_names({row[0] for p in pictures for row in p.objects}))
    numbers = {name: number for number, name in enumerate(names)}
    rows = [(numbers[kind], *row) for p in pictures for kind, *row in p.objects]
    table = np.array(rows, "float64").reshape(-1, 6)
    owner = np.repeat(np.arange(len(pictures)), [len(p.objects) for p in pictures])
    is_given = lambda sides: all(is_number(side) and side >= 1 for side in sides)
    unit = np.array([p.sides if is_given(p.sides) else (0, 0) for p in pictures], "float64")
    notes = _scale(table, owner, unit.copy(), source.read, form)
    table, owner, warnings = _cleaned(table, owner, pictures)
    objects = np.split(table, np.searchsorted(owner, np.arange(1, len(pictures))))
    most = max(1, *map(len, objects))
    padded = lambda rows: np.concatenate([rows, np.tile(FILL, (most - len(rows), 1))])
    notes.append(
        f"{len(table):,} objects, {(table[:, 5] > 0).sum():,} of them crowds or difficult and not "
        f"learned; {len(objects) - len({*owner}):,} of {len(objects):,} pictures have none"
    )
    present = np.zeros((len(objects), len(names)), "float32")
    present[owner, table[:, 0].astype(int)] = 1
    sources = dict.fromkeys(picture.source for picture in pictures if picture.source)
    annotations = [(file, os.path.join(root, file)) for file in sources]
    files: Any = source.files
    return dataclasses.replace(
        source,
        labels=Labels("boxes", names, present),
        label_of=lambda i, sides: padded(objects[i]),
        files=lambda indices: [*files(indices), *annotations],
        sides=np.where((unit > 1).any(axis=1, keepdims=True), unit, 0),
        notes=(*source.notes, *notes),
        warnings=(*source.warnings, *warnings),
    )


def _check_objects(pictures, names) -> None:
    for picture in pictures:
        for number, (kind, *box, _) in enumerate(picture.objects, 1):
            is_known = isinstance(kind, str) and (kind in names if names else kind)
            if not is_known or len(box) != 4 or not all(map(is_number, box)):
                raise ValueError(
                    "An object must have a class and four finite numbers. Received: "
                    f"{short([kind, *box])} as object {number} of {picture.file!r}"
                    + (f" in {picture.source!r}" if picture.source else "")
                )


def _scale(rows, owner, unit, read, form) -> list[str]:
    """Turns columns 1 to 4 of `(T, 6)` into left, top, right and bottom as fractions of the sides.

    Returns notes; `unit`, the sides of each picture, `(N, 2)`, is changed too.
    """
    corners, notes = rows[:, 1:5], list[str]()
    first, last = corners[:, :2], corners[:, 2:]
    if (unit != 1).any() and len(rows) and corners.max() < LARGEST_SHARE:
        unit[:] = 1
        notes.append("boxes are fractions of the sides, since all their numbers are small")
    unknown = np.flatnonzero((unit < 1).any(axis=1))
    unit[unknown] = [*read_ahead(lambda i: _sides(read, i), unknown)] or 0
    limits = np.tile(unit[:, ::-1], 2)[owner]  # (T, 4): width, height, width, height
    if form == "centers":
        first -= last / 2
    elif form == "either" and len(rows):
        fits = (first + last <= limits[:, :2] * (1 + SLACK)).all(axis=1).mean()
        form = "sizes" if fits >= (last > first).all(axis=1).mean() else "corners"
        said = "width and height" if form == "sizes" else "right and bottom"
        notes.append(f"boxes are left, top, {said}, since most lie in their pictures that way")
    if form != "corners":
        last += first
    corners /= limits
    return notes


def _sides(read, index) -> tuple[int, int]:
    """Returns the sides in a picture's header; (1, 1) if it is unreadable, which a run reports."""
    try:
        return picture_sides(read(index))
    except (OSError, ValueError):
        return (1, 1)


def _cleaned(rows, owner, pictures) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Returns the distinct rows `(n, 6)` with a nonzero area, their owners, and warnings."""
    outside = (abs(rows[:, 1:5] - 0.5) > 0.5 + SLACK).any(axis=1)
    rows = _clipped(rows, rows[:, 1:3], rows[:, 3:5]).astype("float32")
    empty = (rows[:, 3:5] <= 0).any(axis=1)
    _, first = np.unique(np.column_stack([owner, rows]), axis=0, return_index=True)
    again = ~empty & ~np.isin(np.arange(len(rows)), first)
    kept = ~empty & ~again
    named = lambda marked: listed(dict.fromkeys(pictures[i].file for i in owner[marked]))
    if len(rows) and not kept.any():
        raise ValueError(
            f"Boxes must have an area inside their pictures. Received: {len(rows):,} without one, "
            f"in {named(empty)}. YOLO's boxes are fractions of the sides; others are pixels"
        )
    warnings = [
        f"{what} ({marked.sum():,}), in {named(marked)}"
        for what, marked in (
            ("boxes that exceed their picture are cut at its edge", outside & ~empty),
            ("boxes without an area in their picture are left out", empty),
            ("boxes that occur twice count once", again),
        )
        if marked.any()
    ]
    return rows[kept], owner[kept], warnings


def object_window(sides: tuple[int, int], label: np.ndarray, rng: np.random.Generator) -> Window:
    """Draws a part of a picture around objects, as SSD and torchvision's `RandomIoUCrop` do.

    The part has 30 to 100% of each side, and a ratio of sides up to 2. It holds the center of an
    object whose IoU with the part is at least a random number. If no draw fits, or that number is
    1, the part is the whole picture.

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
    """Returns the objects `(M, 6)` of a part of a picture: those whose centers lie in it, clipped.

    Args:
        label: The objects of the picture, `(M, 6)`.
        windows: Parts of the picture, each in fractions of the one before. A part may be larger
            than the picture; a negative width mirrors it.
    """
    for top, left, height, width in (window for window in windows if window != WHOLE):
        corner, scale = np.array([left, top], "float32"), np.array([width, height], "float32")
        center, half = (label[:, 1:3] - corner) / scale, abs(label[:, 3:5] / scale) / 2
        inside = (label[:, :1] >= 0) & ((center >= 0) & (center < 1)).all(axis=1, keepdims=True)
        label = np.where(inside, _clipped(label, center - half, center + half), FILL)
    return label


def _clipped(rows, first, last) -> np.ndarray:
    """Returns objects with boxes from `first` to `last`, `(n, 2)`, cut at the picture's edges."""
    low, high = first.clip(0, 1), last.clip(0, 1)
    return np.concatenate([rows[:, :1], (low + high) / 2, high - low, rows[:, 5:]], axis=1)


LARGEST_COCO_BYTES = 2**29  # COCO's largest file takes 90% of that
HEAD_BYTES = 2**16  # in which a JSON file shows what it is
LARGEST_XML_BYTES = 2**20
CODE_IN_XML = re.compile(rb"<!DOCTYPE|<!ENTITY|\0", re.IGNORECASE)  # zeros are in UTF-16
COCO_FIELDS = rb'"(images|annotations|categories)"\s*:\s*\['
VOC_TAGS = ("name", "difficult", *(f"bndbox/{edge}" for edge in ("xmin", "ymin", "xmax", "ymax")))
REMEDY = "Repair it, or write it again"
IMAGES, LABELS = f"{os.sep}images{os.sep}", f"{os.sep}labels{os.sep}"  # YOLO's folders

Annotations = tuple[list[Annotated], tuple[str, ...]]  # pictures, and names if ordered by the files


def holds_boxes(path: str) -> bool:
    """Whether a folder holds boxes: YOLO's `data.yaml`, COCO's JSON, or Pascal VOC's XML.

    Example:
        >>> holds_boxes("photos")  # which has a folder for each class
        False
    """
    return os.path.isdir(path) and any(next(_files(path, *r[2:]), "") for r in FORMATS.values())


def read_boxes(path: str) -> tuple[list[Annotated], tuple[str, ...], str]:
    """Reads the annotations of a folder.

    Returns:
        The pictures; the names of the classes, or none if they are to be sorted; and the form of
        the boxes, as `with_boxes` takes them.

    Raises:
        FileNotFoundError: If a picture or a folder of pictures does not exist.
        ValueError: If there are no annotations, or if they are damaged; the message names the file
            and the place.
    """
    for read, form, *row in FORMATS.values():
        if files := [*_files(path, *row)]:
            pictures, names = read(path, files)
            listed = collections.Counter((picture.split, picture.file) for picture in pictures)
            count = sum(len(picture.objects) for picture in pictures)
            if not count or len({*names}) < len(names) or max(listed.values()) > 1:
                raise ValueError(
                    "A data set of boxes needs objects, distinct class names and each picture "
                    f"once. Received: {files[0]!r} with {count} objects, the names {short(names)}, "
                    f"and the most frequent picture {listed.most_common(1)}"
                )
            return pictures, names, form
    forms = ", ".join(FORMATS)
    raise ValueError(f"A folder of boxes needs files of one format: {forms}. Received: {path!r}")


def _files(root, suffixes, holds: bytes, depth: int) -> Iterator[str]:
    """Yields the files that contain `holds`, in `root` and its annotation and split folders."""
    for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
        if is_folder(entry):
            if depth and (entry.name.lower() == "annotations" or split_in(entry.name, "")):
                yield from _files(entry.path, suffixes, holds, depth - 1)
        elif entry.name.lower().endswith(suffixes) and entry.is_file() and not is_junk(entry.name):
            with open(entry.path, "rb") as file:
                if re.search(holds, file.read(HEAD_BYTES), re.MULTILINE):
                    yield entry.path


def _yolo(root, files) -> Annotations:
    content = read_yaml(files[0])
    names = content.get("names")
    if isinstance(names, Mapping):
        names = [names.get(k) for k in range(len(names))]
    if not isinstance(names, list) or not all(is_text(n) or type(n) is int for n in names):
        raise ValueError(f"{files[0]!r} must name all classes from 0 up. Received: {short(names)}")
    pictures, names = [], tuple(map(str, names))
    for split in ("train", "val", "test"):
        for picture in _yolo_pictures(root, content, split):
            before, images, after = os.path.splitext(picture)[0].rpartition(IMAGES)
            source = f"{before}{images and LABELS}{after}.txt"  # or beside the picture
            objects = [*_yolo_objects(read_lines(source, REMEDY), names, "kpt_shape" in content)]
            file, beside = (os.path.relpath(path, root) for path in (picture, source))
            pictures.append(Annotated(file, beside, split, objects))
    return pictures, names


def _yolo_pictures(root, content, split) -> Iterator[str]:
    """Yields the pictures of a split, which is a folder, a list of files, or several of them."""
    value, above = content.get(split) or [], str(content.get("path") or "")
    for text in map(str, value if isinstance(value, list) else [value]):
        # Some tools write `../` before a folder beside the file.
        names = os.path.join(above, text), text, re.sub(r"^(\.\./)+", "", text)
        places = [os.path.normpath(os.path.join(root, name)) for name in names]
        place = next(filter(os.path.exists, places), places[-1])
        if place.endswith(".txt"):
            for line in read_lines(place, REMEDY):
                yield os.path.normpath(os.path.join(os.path.dirname(place), line))
        else:
            yield from expand_argument(place)


def _yolo_objects(lines, names, has_keypoints) -> Iterator[tuple]:
    rows: Iterator[list[Any]] = ([*map(as_number, line.split())] for line in lines)
    for kind, *box in rows:
        if has_keypoints:  # after the box
            box = box[:4]
        elif len(box) >= 6 and len(box) % 2 == 0 and None not in box:  # a polygon
            (left, right), (top, bottom) = ((min(of), max(of)) for of in (box[::2], box[1::2]))
            box = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
        yield names[int(kind)] if kind in range(len(names)) else kind, *box, 0


COCO_NAMES = {  # of the fields that are read
    *("categories", "id", "name", "images", "file_name", "height", "width"),
    *("annotations", "image_id", "category_id", "bbox", "iscrowd"),
}


def _coco(root, files) -> Annotations:
    instances = [file for file in files if os.path.basename(file).startswith("instances")]
    pictures, names, place = list[Annotated](), tuple[str, ...](), PictureFiles(root)
    for file in instances or files:
        content = read_json(file, dict, REMEDY, LARGEST_COCO_BYTES, COCO_NAMES)
        source, picture = os.path.relpath(file, root), ""
        split = split_in(source)
        try:
            kinds = {kind["id"]: kind["name"] for kind in content["categories"]}
            of_file = tuple(kinds[key] for key in sorted(kinds))
            objects: dict[Any, list[tuple]] = {image["id"]: [] for image in content["images"]}
            for row in content["annotations"]:
                is_crowd = YES_OR_NO.get(str(row.get("iscrowd")).casefold())
                kind, flag = row["category_id"], CROWD if is_crowd else 0
                objects[row["image_id"]].append((kinds.get(kind, kind), *row["bbox"], flag))
            counts = [len(content["categories"]), len(content["images"])]
            if [len({*of_file}), len(objects)] != counts or (names and names != of_file):
                raise TypeError(f"an id or a name twice, or categories that differ: {short(kinds)}")
            for image in content["images"]:
                sides = image.get("height"), image.get("width")
                beside = os.path.dirname(source), os.path.dirname(picture)
                picture = _picture(place, source, split, beside, str(image["file_name"]))
                pictures.append(Annotated(picture, source, split, objects[image["id"]], sides))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{file!r} needs COCO's images (id, file_name), annotations (image_id, "
                "category_id, bbox) and categories (id, name), which must be the same in all "
                f"files. Received: {error!r}"
            ) from error
        names = of_file
    return pictures, names


def _picture(files: PictureFiles, source, split, beside, *names) -> str:
    """Returns the picture that an annotation file names: in a folder, or the only one that fits."""
    for near in (os.path.join(files.root, folder, names[-1]) for folder in beside):
        if os.path.isfile(near):
            return os.path.relpath(near, files.root)
    paths = next(filter(None, map(files.find, names)), [])
    base = os.path.basename(names[-1])
    paths = [path for path in paths if split_in(os.path.dirname(path), split) == split] or paths
    paths = [path for path in paths if os.path.basename(path) == base] or paths
    if len(paths) != 1:
        raise ValueError(
            f"An annotated picture must be one file below {files.root!r}. Received: "
            f"{names[-1]!r} in {source!r}, which matches {paths[:5] or 'none'}"
        )
    return os.path.normpath(paths[0])


def _voc(root, files) -> Annotations:
    place, pictures, sets = PictureFiles(root), list[Annotated](), dict[str, str]()
    for name in ("trainval", "train", "val", "test"):  # later ones override earlier ones
        file = os.path.join(root, "ImageSets", "Main", f"{name}.txt")
        of = name.removesuffix("val") or name
        sets |= {line.split()[0]: of for line in read_lines(file, REMEDY)}
    for file in files:
        folder, name = os.path.split(source := os.path.relpath(file, root))
        stem, objects = os.path.splitext(name)[0], list[tuple]()
        if not (split := sets.get(stem, "") if sets else split_in(folder)):
            continue
        tree = _read_xml(file)
        for item in tree.iter("object"):
            kind, difficult, *texts = (item.findtext(tag, "").strip() for tag in VOC_TAGS)
            objects.append((kind, *map(as_number, texts), DIFFICULT if difficult == "1" else 0))
        sides = [as_number(tree.findtext(f"size/{side}", "")) for side in ("height", "width")]
        named = tree.findtext("filename", "").strip() or stem
        picture = _picture(place, source, split, (folder,), stem, named)
        pictures.append(Annotated(picture, source, split, objects, sides))
    return pictures, ()


def _read_xml(file) -> ElementTree.Element:
    try:
        data = read_bounded(file, LARGEST_XML_BYTES)
        if CODE_IN_XML.search(data):
            raise ValueError("it must not define entities")
        return ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise ValueError(f"{file!r} cannot be read as XML ({error}). {REMEDY}") from error


# The reader, the form of its boxes, the suffixes of its files, what they hold, and how deep their
# folders are.
FORMATS: dict[str, tuple[Any, ...]] = {
    "YOLO (data.yaml)": (_yolo, "centers", (".yaml", ".yml"), rb"^names\s*:", 0),
    "COCO (annotations/*.json)": (_coco, "sizes", (".json",), COCO_FIELDS, 2),
    "Pascal VOC (Annotations/*.xml)": (_voc, "corners", (".xml",), rb"<annotation\b", 2),
}
