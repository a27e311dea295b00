"""Folders of pictures with boxes: YOLO's, COCO's and Pascal VOC's files."""

import collections
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

from vit_keras.config.recipes import read_yaml
from vit_keras.data.boxes import CROWD, DIFFICULT, Annotated, known_sides
from vit_keras.data.dataset import split_in
from vit_keras.data.labels import as_number
from vit_keras.data.picture_paths import PictureFiles, expand_argument, is_folder, is_junk
from vit_keras.support.annotated import is_number, is_text, short
from vit_keras.support.files import read_bounded, read_text
from vit_keras.support.json_files import read_json

LARGEST_COCO_BYTES = 2**29  # COCO's largest file has 0.9 of that
HEAD_BYTES = 2**16  # in which a JSON file shows what it is
LARGEST_XML_BYTES = 2**20
CODE_IN_XML = re.compile(rb"<!DOCTYPE|<!ENTITY|\0", re.IGNORECASE)  # zeros are in UTF-16
COCO_FIELDS = rb'"(images|annotations|categories)"\s*:\s*\['
VOC_TAGS = ("name", "difficult", *(f"bndbox/{edge}" for edge in ("xmin", "ymin", "xmax", "ymax")))
REMEDY = "Repair it, or write it again"


Annotations = tuple[list[Annotated], tuple[str, ...]]  # pictures, and names if files order them


def holds_boxes(path: str) -> bool:
    """Whether a folder holds boxes: YOLO's `data.yaml`, COCO's JSON, or Pascal VOC's XML.

    Example:
        >>> holds_boxes("photos")  # which has a folder for each class
        False
    """
    return os.path.isdir(path) and any(next(_files(path, *r[1:]), "") for r in FORMATS.values())


def read_boxes(path: str) -> Annotations:
    """Reads the annotations of a folder.

    Returns:
        The pictures, and the names of the classes; no names if they are to be sorted.

    Raises:
        FileNotFoundError: If a picture or a folder of pictures does not exist.
        ValueError: If there are no annotations, or if they are damaged; the message names the file
            and the place.
    """
    for row in FORMATS.values():
        if files := [*_files(path, *row[1:])] if os.path.isdir(path) else []:
            pictures, names = row[0](path, files)
            listed = collections.Counter((picture.split, picture.file) for picture in pictures)
            count = sum(len(picture.objects) for picture in pictures)
            if not count or len({*names}) < len(names) or max(listed.values()) > 1:
                raise ValueError(
                    "A data set of boxes needs objects, a name for each class, and each picture "
                    f"once. Received: {files[0]!r} with {count} objects, the classes "
                    f"{short(names)}, and {listed.most_common(1)}"
                )
            return pictures, names
    forms = ", ".join(FORMATS)
    raise ValueError(f"A folder of boxes needs the files of {forms}. Received: {path!r}")


def _files(root, suffixes, holds: bytes, depth: int) -> Iterator[str]:
    """Yields files in `root` and its folders of annotations or splits that hold a pattern."""
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
        raise ValueError(
            f"{files[0]!r} must name all classes from 0 on, as texts in quotes. Received: "
            f"names={short(names)}"
        )
    pictures, names = [], tuple(map(str, names))
    for split in ("train", "val", "test"):
        for picture in _yolo_pictures(root, content, split):
            source = _yolo_labels(picture)
            objects = _yolo_objects(source, names) if os.path.isfile(source) else []
            file, beside = (os.path.relpath(path, root) for path in (picture, source))
            pictures.append(Annotated(file, beside, split, objects))
    return pictures, names


def _yolo_pictures(root, content, split) -> Iterator[str]:
    """Yields the pictures of a split, which is a folder, a list of files, or several of them."""
    value = content.get(split) or []
    for text in map(str, value if isinstance(value, list) else [value]):
        above = str(content.get("path") or ""), "", ""
        texts = text, text, re.sub(r"^(\.\./)+", "", text)  # of a folder beside, for some tools
        places = [os.path.normpath(os.path.join(root, *pair)) for pair in zip(above, texts)]
        place = next(filter(os.path.exists, places), places[-1])
        if place.endswith(".txt"):
            for line in read_text(place, REMEDY).split("\n"):
                if line.strip():
                    yield os.path.normpath(os.path.join(os.path.dirname(place), line.strip()))
        else:
            yield from expand_argument(place)


def _yolo_labels(picture: str) -> str:
    """Returns the file of a picture's labels: in the folder labels beside images, or beside it."""
    before, images, after = os.path.splitext(picture)[0].rpartition(f"{os.sep}images{os.sep}")
    return f"{before}{images and f'{os.sep}labels{os.sep}'}{after}.txt"


def _yolo_objects(path, names) -> list[tuple]:
    objects = []
    for number, line in enumerate(read_text(path, REMEDY).split("\n"), 1):
        if not (cells := line.split()):
            continue
        row: list[Any] = [*map(as_number, cells)]
        kind, *numbers = row
        is_polygon = len(numbers) >= 6 and len(numbers) % 2 == 0
        fits = None not in numbers and (len(numbers) == 4 or is_polygon)
        if not fits or kind not in range(len(names)):
            raise ValueError(
                f"Line {number} of {path!r} must hold a class from 0 to {len(names) - 1}, center "
                "x, center y, width and height as shares of the sides, or a polygon. Received: "
                f"{short(line)}"
            )
        if is_polygon:
            xs, ys = numbers[::2], numbers[1::2]
            corners = min(xs), min(ys), max(xs), max(ys)
        else:
            x, y, width, height = numbers
            corners = x - width / 2, y - height / 2, x + width / 2, y + height / 2
        objects.append((names[int(kind)], *corners, 0))
    return objects


# The fields of COCO's records that are read, and their types.
COCO: dict[str, dict[str, tuple[type, ...]]] = {
    "images": {"id": (int, str), "file_name": (str,)},
    "categories": {"id": (int,), "name": (str,)},
    "annotations": {"image_id": (int, str), "category_id": (int,), "bbox": (list,)},
}
COCO_NAMES = {*COCO, *(name for row in COCO.values() for name in row)}
COCO_NAMES |= {"height", "width", "iscrowd"}


def _coco(root, files) -> Annotations:
    instances = [file for file in files if os.path.basename(file).startswith("instances")]
    pictures, names, place = list[Annotated](), tuple[str, ...](), PictureFiles(root)
    for file in instances or files:
        images, categories, rows = _coco_records(file)
        kinds = {kind["id"]: kind["name"] for kind in categories}
        objects: dict[Any, list[tuple]] = {image["id"]: [] for image in images}
        of_file = tuple(kinds[key] for key in sorted(kinds))
        is_clear = len({*of_file}) == len(categories) and len(objects) == len(images)
        if not is_clear or (names and names != of_file):
            raise ValueError(
                "Images must have different ids, and categories different ids and names, the same "
                f"in all files. Received: {file!r} with {short(categories)}"
            )
        for number, row in enumerate(rows):
            item = _coco_object(row, kinds, objects, f"annotations[{number}] of {file!r}")
            objects[row["image_id"]].append(item)
        names, source, picture = of_file, os.path.relpath(file, root), ""
        split = split_in(source)
        for image in images:
            sides = known_sides(image.get("height", 0), image.get("width", 0))
            beside = os.path.dirname(source), os.path.dirname(picture)
            picture = _picture(place, source, split, beside, image["file_name"])
            pictures.append(Annotated(picture, source, split, objects[image["id"]], sides))
    return pictures, names


def _coco_records(file) -> list[list[dict]]:
    """Returns the lists of COCO's file after a check of their types."""
    content = read_json(file, dict, REMEDY, LARGEST_COCO_BYTES, COCO_NAMES)
    for field, types in COCO.items():
        rows = content.get(field)
        for number, row in enumerate(rows if isinstance(rows, list) else [rows]):
            fits = isinstance(row, dict) and all(isinstance(row.get(k), types[k]) for k in types)
            if not fits:
                raise ValueError(
                    f"{field}[{number}] of {file!r} must be an object with {', '.join(types)}. "
                    f"Received: {short(row)}"
                )
    return [content[field] for field in COCO]


def _coco_object(row, kinds, objects, where) -> tuple:
    box, is_known = row["bbox"], row["image_id"] in objects and row["category_id"] in kinds
    if not is_known or len(box) != 4 or not all(map(is_number, box)):
        raise ValueError(
            f"{where} must have the ids of an image and of a category, and four finite numbers as "
            f"bbox. Received: {short([row[key] for key in COCO['annotations']])}"
        )
    left, top, width, height = box
    flag = CROWD if row.get("iscrowd") else 0
    return kinds[row["category_id"]], left, top, left + width, top + height, flag


def _picture(files: PictureFiles, source, split, beside, *names) -> str:
    """Returns the picture that an annotation file means: in a folder, or the only one that fits."""
    for near in (os.path.join(files.root, folder, names[-1]) for folder in beside):
        if os.path.isfile(near):
            return os.path.relpath(near, files.root)
    paths = next(filter(None, map(files.find, names)), [])
    for fits in (
        lambda path: split_in(os.path.dirname(path), split) == split,
        lambda path: os.path.basename(path) == os.path.basename(names[-1]),
    ):
        paths = [*filter(fits, paths)] or paths
    if len(paths) != 1:
        raise ValueError(
            f"An annotated picture must be one file below {files.root!r}. Received: "
            f"{names[-1]!r} in {source!r}, which may be {paths[:5] or 'none'}"
        )
    return os.path.normpath(paths[0])


def _voc(root, files) -> Annotations:
    place, pictures, sets = PictureFiles(root), list[Annotated](), dict[str, str]()
    for name in ("trainval", "train", "val", "test"):  # later ones over earlier ones
        file = os.path.join(root, "ImageSets", "Main", f"{name}.txt")
        lines = read_text(file, REMEDY).split("\n") if os.path.isfile(file) else []
        split = name.removesuffix("val") or name
        sets |= {line.split()[0]: split for line in lines if line.split()}
    for file in files:
        folder, name = os.path.split(source := os.path.relpath(file, root))
        stem = os.path.splitext(name)[0]
        if split := sets.get(stem, "") if sets else split_in(folder):
            name, objects, sides = _voc_objects(file)
            picture = _picture(place, source, split, (folder,), stem, name or stem)
            pictures.append(Annotated(picture, source, split, objects, sides))
    return pictures, ()


def _voc_objects(file) -> tuple[str, list[tuple], tuple[float, ...] | None]:
    """Returns the name of a picture, its objects, and its sides."""
    try:
        data = read_bounded(file, LARGEST_XML_BYTES)
        if CODE_IN_XML.search(data):
            raise ValueError("it must be without definitions")
        tree = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise ValueError(f"{file!r} cannot be read as XML ({error}). {REMEDY}") from error
    objects = []
    for number, item in enumerate(tree.iter("object"), 1):
        name, difficult, *texts = (item.findtext(tag, "").strip() for tag in VOC_TAGS)
        corners = [*map(as_number, texts)]
        if not name or None in corners:
            raise ValueError(
                f"Object {number} of {file!r} must have a name, and numbers xmin, ymin, xmax and "
                f"ymax. Received: {short([name, *texts])}"
            )
        objects.append((name, *corners, DIFFICULT if difficult == "1" else 0))
    sides = [as_number(tree.findtext(f"size/{side}", "")) or 0 for side in ("height", "width")]
    return tree.findtext("filename", "").strip(), objects, known_sides(*sides)


# The reader, the suffixes of its files, what they hold, and how deep their folders are.
FORMATS: dict[str, tuple[Callable, tuple[str, ...], bytes, int]] = {
    "YOLO (data.yaml)": (_yolo, (".yaml", ".yml"), rb"^names\s*:", 0),
    "COCO (annotations/*.json)": (_coco, (".json",), COCO_FIELDS, 2),
    "Pascal VOC (Annotations/*.xml)": (_voc, (".xml",), rb"<annotation\b", 2),
}
