"""Folders of pictures with boxes: YOLO's, COCO's and Pascal VOC's files."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np

from vit_keras.config.sources import read_yaml
from vit_keras.data.boxes import CROWD, Annotated
from vit_keras.data.dataset import HELD_OUT, split_name
from vit_keras.data.picture_paths import PictureFiles, expand_argument, is_folder, is_junk
from vit_keras.support.annotated import is_number, is_text, short
from vit_keras.support.files import read_text
from vit_keras.support.json_files import read_json

LARGEST_COCO_BYTES = 2**30  # the training pictures of COCO have 2**29
HEAD_BYTES = 2**16  # in which a JSON file shows what it is
REMEDY = "Repair it, or write it again"


class Annotations(NamedTuple):
    """The annotated pictures of a folder, and the names of the classes."""

    pictures: list[Annotated]
    names: tuple[str, ...]


def holds_boxes(path: str) -> bool:
    """Whether a folder holds boxes: YOLO's `data.yaml`, COCO's JSON, or Pascal VOC's XML.

    Example:
        >>> holds_boxes("photos")  # which has a folder for each class
        False
    """
    return os.path.isdir(path) and any(row.files(path) for row in FORMATS.values())


def read_boxes(path: str) -> Annotations:
    """Reads the annotations of a folder.

    Raises:
        FileNotFoundError: If a picture or a folder of pictures does not exist.
        ValueError: If there are no annotations, or if they are damaged; the message names the file
            and the place.
    """
    for row in FORMATS.values():
        if files := row.files(path):
            pictures, names = row.read(path, files)
            if len({*names}) < len(names) or not any(picture.objects for picture in pictures):
                raise ValueError(
                    "A data set of boxes needs objects, and a name for each class. Received: "
                    f"{files[0]!r} with {sum(len(p.objects) for p in pictures)} objects and the "
                    f"classes {short(names)}"
                )
            return Annotations(pictures, names)
    forms = ", ".join(FORMATS)
    raise ValueError(f"A folder of boxes needs the files of {forms}. Received: {path!r}")


def _annotation_files(root, suffixes, holds: str) -> list[str]:
    """Returns files in `root` and its folders of annotations or splits that hold a pattern."""
    if not os.path.isdir(root):
        return []
    folders = (entry.name for entry in os.scandir(root) if is_folder(entry))
    inside = [n for n in folders if n.lower() == "annotations" or split_in(n, "") in SPLITS]
    files = []
    for place in (root, *(os.path.join(root, name) for name in sorted(inside))):
        for name in sorted(os.listdir(place)):
            file = os.path.join(place, name)
            if name.lower().endswith(suffixes) and not is_junk(name) and os.path.isfile(file):
                with open(file, "rb") as opened:
                    head = opened.read(HEAD_BYTES)
                if re.search(holds.encode(), head, re.MULTILINE):
                    files.append(file)
    return files


SPLITS = ("train", *HELD_OUT)


def split_in(text: str, default: str = "train") -> str:
    """Returns the first name of a split among the words of a path, such as "train2017"."""
    words = map(split_name, re.split(r"[\W_\d]+", text))
    return next((word for word in words if word in SPLITS), default)


def _yolo(root, files) -> Annotations:
    content = read_yaml(files[0])
    names = content["names"]
    if isinstance(names, Mapping):
        names = [names.get(k) for k in range(len(names))]
    if not isinstance(names, list) or not all(is_text(n) or type(n) is int for n in names):
        raise ValueError(
            f"{files[0]!r} must name all classes from 0 on, as texts in quotes. Received: "
            f"names={short(content['names'])}"
        )
    pictures = []
    for split in ("train", "val", "test"):
        for picture in _yolo_pictures(root, content, split):
            source = _yolo_labels(picture)
            objects = _yolo_objects(source, len(names)) if os.path.isfile(source) else []
            file, beside = (os.path.relpath(path, root) for path in (picture, source))
            pictures.append(Annotated(file, beside, split, objects))
    return Annotations(pictures, tuple(map(str, names)))


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


def _yolo_objects(path, num_classes) -> list[list[float]]:
    objects = []
    for number, line in enumerate(read_text(path, REMEDY).split("\n"), 1):
        if not (cells := line.split()):
            continue
        try:
            kind, *numbers = map(float, cells)
        except ValueError:
            kind, numbers = -1.0, []
        is_polygon = len(numbers) >= 6 and len(numbers) % 2 == 0
        fits = np.isfinite(numbers).all() and (len(numbers) == 4 or is_polygon)
        if not fits or kind not in range(num_classes):
            raise ValueError(
                f"Line {number} of {path!r} must hold a class from 0 to {num_classes - 1}, center "
                "x, center y, width and height as shares of the sides, or a polygon. Received: "
                f"{short(line)}"
            )
        if is_polygon:
            xs, ys = numbers[::2], numbers[1::2]
            corners = [min(xs), min(ys), max(xs), max(ys)]
        else:
            x, y, width, height = numbers
            corners = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
        objects.append([kind, *corners, 0])
    return objects


class _Image(TypedDict):
    id: int | str
    file_name: str
    width: NotRequired[float]
    height: NotRequired[float]


class _Object(TypedDict):
    image_id: int | str
    category_id: int
    bbox: list[float]
    iscrowd: NotRequired[int]


class _Category(TypedDict):
    id: int
    name: str


class _Coco(TypedDict):
    images: list[_Image]
    annotations: list[_Object]
    categories: list[_Category]


def _coco(root, files) -> Annotations:
    instances = [file for file in files if os.path.basename(file).startswith("instances")]
    pictures, names, place = list[Annotated](), tuple[str, ...](), PictureFiles(root)
    for file in instances or files:
        content = read_json(file, _Coco, REMEDY, LARGEST_COCO_BYTES)
        kinds = sorted(content["categories"], key=lambda kind: kind["id"])
        names = names or tuple(kind["name"] for kind in kinds)
        if names != tuple(kind["name"] for kind in kinds):
            raise ValueError(
                f"All files of a data set must have the same categories. Received: {file!r} with "
                f"{short([kind['name'] for kind in kinds])} beside {short(names)}"
            )
        source, objects = os.path.relpath(file, root), _coco_objects(file, content, kinds)
        split = split_in(source)
        for image in content["images"]:
            sides = image.get("height", 0), image.get("width", 0)
            known = sides if min(sides) >= 1 else None
            picture = _picture(place, source, split, image["file_name"])
            pictures.append(Annotated(picture, source, split, objects[image["id"]], known))
    return Annotations(pictures, names)


def _coco_objects(file, content, kinds) -> dict[Any, list[list[float]]]:
    """Returns the objects of each picture by its id."""
    numbers = {kind["id"]: k for k, kind in enumerate(kinds)}
    objects: dict[Any, list] = {image["id"]: [] for image in content["images"]}
    for place, item in enumerate(content["annotations"]):
        box, of = item["bbox"], objects.get(item["image_id"])
        if len(box) != 4 or not all(map(is_number, box)) or of is None:
            rule = "bbox must be four finite numbers, and image_id the id of an image"
        elif item["category_id"] not in numbers:
            rule = "category_id must be the id of a category"
        else:
            x, y, width, height = box
            flag = CROWD if item.get("iscrowd") else 0
            of.append([numbers[item["category_id"]], x, y, x + width, y + height, flag])
            continue
        known = {key: item[key] for key in ("image_id", "category_id", "bbox")}
        raise ValueError(f"In annotations[{place}] of {file!r}, {rule}. Received: {known}")
    return objects


def _picture(files: PictureFiles, source, split, *names) -> str:
    """Returns the picture that an annotation file means: beside it, or the only one that fits."""
    near = os.path.join(os.path.dirname(source), names[-1])
    if os.path.isfile(os.path.join(files.root, near)):
        return near
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
    return paths[0]


class Format(NamedTuple):
    """A form of annotations: its files in a folder, and their reader."""

    files: Callable[[str], list[str]]
    read: Callable[[str, Sequence[str]], Annotations]


FORMATS = {
    "YOLO (data.yaml)": Format(
        lambda root: _annotation_files(root, (".yaml", ".yml"), r"^names\s*:"), _yolo
    ),
    "COCO (annotations/*.json)": Format(
        lambda root: _annotation_files(
            root, ".json", r'"(images|annotations|categories)"\s*:\s*\['
        ),
        _coco,
    ),
}
