"""Folders of pictures with boxes: YOLO's, COCO's and Pascal VOC's files."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict
from xml.etree import ElementTree

from vit_keras.config.sources import read_yaml
from vit_keras.data.boxes import CROWD, DIFFICULT, Annotated, known_sides
from vit_keras.data.dataset import HELD_OUT, read_file, split_name
from vit_keras.data.labels import as_number
from vit_keras.data.picture_paths import PictureFiles, expand_argument, is_folder, is_junk
from vit_keras.support.annotated import is_number, is_text, short
from vit_keras.support.files import read_text
from vit_keras.support.json_files import read_json

LARGEST_COCO_BYTES = 2**30  # the training pictures of COCO have 2**29
HEAD_BYTES = 2**16  # in which a JSON file shows what it is
LARGEST_XML_BYTES = 2**20
CODE_IN_XML = re.compile(rb"<!DOCTYPE|<!ENTITY|\0", re.IGNORECASE)  # zeros are in UTF-16
COCO_FIELDS = rb'"(images|annotations|categories)"\s*:\s*\['
VOC_TAGS = ("name", "difficult", *(f"bndbox/{edge}" for edge in ("xmin", "ymin", "xmax", "ymax")))
REMEDY = "Repair it, or write it again"


class Annotations(NamedTuple):
    """The annotated pictures of a folder, and the names of the classes, if the files order them."""

    pictures: list[Annotated]
    names: tuple[str, ...] = ()


def holds_boxes(path: str) -> bool:
    """Whether a folder holds boxes: YOLO's `data.yaml`, COCO's JSON, or Pascal VOC's XML.

    Example:
        >>> holds_boxes("photos")  # which has a folder for each class
        False
    """
    return os.path.isdir(path) and any(next(row.files(path), "") for row in FORMATS.values())


def read_boxes(path: str) -> Annotations:
    """Reads the annotations of a folder.

    Raises:
        FileNotFoundError: If a picture or a folder of pictures does not exist.
        ValueError: If there are no annotations, or if they are damaged; the message names the file
            and the place.
    """
    for row in FORMATS.values():
        if files := [*row.files(path)] if os.path.isdir(path) else []:
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


def _annotation_files(root, suffixes, holds: bytes, depth: int = 2) -> Iterator[str]:
    """Yields files in `root` and its folders of annotations or splits that hold a pattern."""
    for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
        if is_folder(entry):
            if depth and (entry.name.lower() == "annotations" or split_in(entry.name, "")):
                yield from _annotation_files(entry.path, suffixes, holds, depth - 1)
        elif entry.name.lower().endswith(suffixes) and entry.is_file() and not is_junk(entry.name):
            with open(entry.path, "rb") as file:
                if re.search(holds, file.read(HEAD_BYTES), re.MULTILINE):
                    yield entry.path


SPLITS = ("train", *HELD_OUT)


def split_in(text: str, default: str = "train") -> str:
    """Returns the first name of a split among the words of a path, such as "train2017"."""
    words = map(split_name, re.split(r"[\W_\d]+", text))
    return next((word for word in words if word in SPLITS), default)


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
    return Annotations(pictures, names)


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
        kinds = {kind["id"]: kind["name"] for kind in content["categories"]}
        of_file = tuple(kinds[key] for key in sorted(kinds))
        if (names and names != of_file) or len({*of_file}) < len(content["categories"]):
            raise ValueError(
                "Categories must have different ids and names, the same in all files. Received: "
                f"{file!r} with {short(content['categories'])}"
            )
        names, source = of_file, os.path.relpath(file, root)
        objects = _coco_objects(file, content, kinds)
        split = split_in(source)
        for image in content["images"]:
            sides = known_sides(image.get("height", 0), image.get("width", 0))
            picture = _picture(place, source, split, image["file_name"])
            pictures.append(Annotated(picture, source, split, objects[image["id"]], sides))
    return Annotations(pictures, names)


def _coco_objects(file, content, kinds) -> dict[Any, list[tuple]]:
    """Returns the objects of each picture by its id."""
    objects: dict[Any, list] = {image["id"]: [] for image in content["images"]}
    for place, item in enumerate(content["annotations"]):
        box, of = item["bbox"], objects.get(item["image_id"])
        if len(box) != 4 or not all(map(is_number, box)) or of is None:
            rule = "bbox must be four finite numbers, and image_id the id of an image"
        elif item["category_id"] not in kinds:
            rule = "category_id must be the id of a category"
        else:
            x, y, width, height = box
            flag = CROWD if item.get("iscrowd") else 0
            of.append((kinds[item["category_id"]], x, y, x + width, y + height, flag))
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


def _voc(root, files) -> Annotations:
    place, pictures, sets = PictureFiles(root), list[Annotated](), dict[str, str]()
    for name in ("trainval", "train", "val", "test"):  # later ones over earlier ones
        file = os.path.join(root, "ImageSets", "Main", f"{name}.txt")
        lines = read_text(file, REMEDY).split("\n") if os.path.isfile(file) else []
        split = name.removesuffix("val") or name
        sets |= {line.split()[0]: split for line in lines if line.split()}
    for file in files:
        source, stem = os.path.relpath(file, root), os.path.splitext(os.path.basename(file))[0]
        if split := sets.get(stem, "") if sets else split_in(os.path.dirname(source)):
            name, objects, sides = _voc_objects(file)
            picture = _picture(place, source, split, stem, name or stem)
            pictures.append(Annotated(picture, source, split, objects, sides))
    return Annotations(pictures)


def _voc_objects(file) -> tuple[str, list[tuple], tuple[float, ...] | None]:
    """Returns the name of a picture, its objects, and its sides."""
    data = read_file(file)
    try:
        if len(data) > LARGEST_XML_BYTES or CODE_IN_XML.search(data):
            raise ValueError(f"it must have up to {LARGEST_XML_BYTES} bytes, without definitions")
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


class Format(NamedTuple):
    """A form of annotations: its files in a folder, and their reader."""

    files: Callable[[str], Iterator[str]]
    read: Callable[[str, Sequence[str]], Annotations]


FORMATS = {
    "YOLO (data.yaml)": Format(
        lambda root: _annotation_files(root, (".yaml", ".yml"), rb"^names\s*:", 0), _yolo
    ),
    "COCO (annotations/*.json)": Format(
        lambda root: _annotation_files(root, ".json", COCO_FIELDS), _coco
    ),
    "Pascal VOC (Annotations/*.xml)": Format(
        lambda root: _annotation_files(root, ".xml", rb"<annotation\b"), _voc
    ),
}
