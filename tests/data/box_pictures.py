"""Pictures with boxes, and their annotations in each format."""

import csv
import json

import numpy as np
import PIL.Image

from vit_keras import data
from vit_keras.config import AugmentConfig
from vit_keras.models import Preprocessing
from vit_keras.support.tasks import Task

NAMES = ("bird", "car", "dog")
SIZES = [(64, 48), (50, 70), (97, 33), (128, 128), (31, 45)]  # width and height
PIXELS = Preprocessing(mean=(0.0,), std=(1 / 255,))


def objects_of(rng, width, height, count):
    """Rows of class, left, top, right and bottom, in whole pixels."""
    low = rng.integers(0, (width - 9, height - 9), (count, 2))
    high = rng.integers(low + 3, (width + 1, height + 1))
    return np.column_stack([rng.integers(0, len(NAMES), count), low, high])


def picture_of(size, objects):
    pixels = np.full((size[1], size[0], 3), 7, "uint8")
    for number, (_, left, top, right, bottom) in enumerate(objects, 1):
        pixels[top:bottom, left:right] = 40 * number
    return PIL.Image.fromarray(pixels)


def write_pictures(truth, place):
    for (split, name), (size, objects) in truth.items():
        path = place(split, f"{name}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        picture_of(size, objects).save(path)


def write_yolo(root, truth):
    write_pictures(truth, lambda split, name: root / split / "images" / name)
    for (split, name), ((width, height), objects) in truth.items():
        (root / split / "labels").mkdir(exist_ok=True)
        sides, lines = np.array([width, height] * 2), []
        for kind, *corners in objects:
            low, high = np.split(np.array(corners), 2)
            shares = np.concatenate([(low + high) / 2, high - low]) / sides
            lines.append(" ".join(map(str, [kind, *shares.tolist()])))
        if lines:  # a picture without objects may have no file
            (root / split / "labels" / f"{name}.txt").write_text("\n".join(lines))
    yaml = f"train: ../train/images\nval: test/images\nnc: 3\nnames: {json.dumps(NAMES)}\n"
    (root / "data.yaml").write_text(yaml)
    return f"folder:{root}"


def write_coco(root, truth):
    write_pictures(truth, lambda split, name: root / f"{split}2017" / name)
    (root / "annotations").mkdir()
    for split in ("train", "test"):
        images, rows = [], []
        for (of_split, name), ((width, height), objects) in truth.items():
            if of_split != split:
                continue
            sides = {"width": width, "height": height}
            images.append({"id": 99 - len(images), "file_name": f"{name}.png", **sides})
            for kind, left, top, right, bottom in objects.tolist():
                box = {"bbox": [left, top, right - left, bottom - top], "iscrowd": 0}
                known = {"image_id": images[-1]["id"], "category_id": kind * 10 + 1}
                rows.append({"id": len(rows), "segmentation": [[1, 2, 3]], **known, **box})
        kinds = [{"id": k * 10 + 1, "name": NAMES[k]} for k in (2, 0, 1)]
        content = {"info": {}, "images": images, "annotations": rows, "categories": kinds}
        path = root / "annotations" / f"instances_{split}2017.json"
        path.write_text(json.dumps(content))
        (root / "annotations" / f"captions_{split}2017.json").write_text('{"images": []}')
    return f"folder:{root}"


VOC_OBJECT = """<object><name>{}</name><difficult>{}</difficult><bndbox><xmin>{}</xmin>
<ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object>"""


def write_voc(root, truth):
    write_pictures(truth, lambda split, name: root / "JPEGImages" / name)
    write_pictures(truth, lambda split, name: root / "SegmentationClass" / f"{name[:-3]}bmp")
    for folder in ("Annotations", "ImageSets/Main"):
        (root / folder).mkdir(parents=True)
    for (_, name), ((width, height), objects) in truth.items():
        inside = "".join(VOC_OBJECT.format(NAMES[row[0]], 0, *row[1:]) for row in objects)
        (root / "Annotations" / f"{name}.xml").write_text(
            f"<annotation><filename>{name}.png</filename><size><width>{width}</width><height>"
            f"{height}</height><depth>3</depth></size>{inside}</annotation>"
        )
    for split in ("train", "test"):
        names = [name for s, name in truth if s == split]
        (root / "ImageSets/Main" / f"{split}.txt").write_text("\n".join(names))
    return f"folder:{root}"


COLUMNS = ["filename", "xmin", "ymin", "xmax", "ymax", "class", "split"]


def write_table(root, truth):
    write_pictures(truth, lambda split, name: root / "pictures" / name)
    rows = [COLUMNS]
    for (split, name), (_, objects) in truth.items():
        said = [[*corners, NAMES[kind]] for kind, *corners in objects] or [[""] * 5]
        rows += [[f"pictures/{name}.png", *of, split] for of in said]
    with open(root / "boxes.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    return f"table:{root / 'boxes.csv'}"


def write_hub(root, truth, with_sides=True, as_corners=False):
    from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, List, Value

    def row(size, objects):
        boxes = [[x, y, r - x, b - y] for _, x, y, r, b in objects.tolist()]
        boxes = objects[:, 1:].tolist() if as_corners else boxes
        cell = {"bbox": boxes, "category": [NAMES[k] for k in objects[:, 0]]}
        sides = {"width": size[0], "height": size[1]} if with_sides else {}
        return {"image": picture_of(size, objects), "objects": cell, **sides}

    kinds = List(ClassLabel(names=list(NAMES)))
    objects = {"bbox": List(List(Value("float64"))), "category": kinds}
    features = {"image": Image(), "objects": objects}
    if with_sides:
        features |= {"width": Value("int32"), "height": Value("int32")}
    made = {}
    for split in ("train", "test"):
        rows = [row(*of) for (s, _), of in truth.items() if s == split]
        made[split] = Dataset.from_list(rows, features=Features(features))
    DatasetDict(made).save_to_disk(root)
    return f"hf:{root}"


FORMATS = {
    "yolo": write_yolo,
    "coco": write_coco,
    "voc": write_voc,
    "table": write_table,
    "hf": write_hub,
    "hf without sizes": lambda root, truth: write_hub(root, truth, with_sides=False),
    "hf with corners": lambda root, truth: write_hub(root, truth, as_corners=True),
}


def expected_label(size, objects, most):
    label = np.zeros((most, 6))
    label[:, 0] = -1
    for row, (kind, left, top, right, bottom) in zip(label, objects):
        sides = np.array([size[0], size[1]] * 2)
        box = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
        row[:] = [kind, *(box / sides), 0]
    return label.astype("float32")


def in_corners(box):
    x, y, width, height = box.astype("float64")
    return np.array([x - width / 2, y - height / 2, x + width / 2, y + height / 2])


def batches(split, changes):
    options = {"image_size": (120, 144), "preprocessing": PIXELS, "batch": 8, "seed": 3}
    options |= {"start_step": 0, "total_steps": 6, "num_classes": 4, "task": Task("boxes")}
    made = data.train_batches(split, augment_config=AugmentConfig(**changes), **options)
    return [np.concatenate(tensors) for tensors in zip(*made)]
