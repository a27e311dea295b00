"""Pictures with boxes, and their annotations in each format."""

import csv
import json

import numpy as np
from PIL import Image

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
    return Image.fromarray(pixels)


def write_pictures(truth, place):
    for (split, name), (size, objects) in truth.items():
        path = place(split, f"{name}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        picture_of(size, objects).save(path)


def write_yolo(root, truth):
    write_pictures(truth, lambda split, name: root / split / "images" / name)
    for (split, name), ((width, height), objects) in truth.items():
        (root / split / "labels").mkdir(exist_ok=True)
        lines = [
            f"{kind} {(left + right) / 2 / width} {(top + bottom) / 2 / height} "
            f"{(right - left) / width} {(bottom - top) / height}\n"
            for kind, left, top, right, bottom in objects
        ]
        if lines:  # a picture without objects may have no file
            (root / split / "labels" / f"{name}.txt").write_text("".join(lines))
    (root / "data.yaml").write_text(
        f"train: ../train/images\nval: test/images\nnc: 3\nnames: {json.dumps(NAMES)}\n"
    )
    return f"folder:{root}"


def write_coco(root, truth):
    write_pictures(truth, lambda split, name: root / f"{split}2017" / name)
    (root / "annotations").mkdir()
    for split in ("train", "test"):
        chosen = {name: of for (s, name), of in truth.items() if s == split}
        images = [
            {"id": 9 - i, "file_name": f"{name}.png", "width": size[0], "height": size[1]}
            for i, (name, (size, _)) in enumerate(chosen.items())
        ]
        rows = [
            {
                "id": 100 * i + number,
                "image_id": 9 - i,
                "category_id": int(kind) * 10 + 1,
                "bbox": [int(left), int(top), int(right - left), int(bottom - top)],
                "segmentation": [[1, 2, 3]],
                "iscrowd": 0,
            }
            for i, (_, objects) in enumerate(chosen.values())
            for number, (kind, left, top, right, bottom) in enumerate(objects)
        ]
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
    write_pictures(
        truth, lambda split, name: root / "SegmentationClass" / name.replace("png", "bmp")
    )
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
    import datasets

    def row(size, objects):
        boxes = [[x, y, r - x, b - y] for _, x, y, r, b in objects.tolist()]
        boxes = objects[:, 1:].tolist() if as_corners else boxes
        cell = {"bbox": boxes, "category": [NAMES[k] for k in objects[:, 0]]}
        sides = {"width": size[0], "height": size[1]} if with_sides else {}
        return {"image": picture_of(size, objects), "objects": cell, **sides}

    features = {
        "image": datasets.Image(),
        "objects": {
            "bbox": datasets.List(datasets.List(datasets.Value("float64"))),
            "category": datasets.List(datasets.ClassLabel(names=list(NAMES))),
        },
        **({s: datasets.Value("int32") for s in ("width", "height")} if with_sides else {}),
    }
    made = {}
    for split in ("train", "test"):
        rows = [row(*of) for (s, _), of in truth.items() if s == split]
        made[split] = datasets.Dataset.from_list(rows, features=datasets.Features(features))
    datasets.DatasetDict(made).save_to_disk(root)
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
