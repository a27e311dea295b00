# ruff: noqa: E501 - rows of tables of cases
"""Boxes: five formats, hostile annotations, and changes together with their pictures."""

import csv
import dataclasses
import json
import re

import datasets
import numpy as np
import PIL.Image
import pytest
from PIL import Image

from tests.peers import peer
from vit_keras import data
from vit_keras.config import AugmentConfig, DataConfig
from vit_keras.data.boxes import object_window
from vit_keras.models import Preprocessing
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.once

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


@pytest.fixture(scope="module")
def truth():
    """The size and the objects of each picture by split and name; one has none."""
    rng, counts = np.random.default_rng(7), {"train": [3, 0, 5, 1, 2, 4], "test": [2, 1, 3]}
    return {
        (split, f"{split}{i}"): (size, objects_of(rng, *size, count))
        for split, of in counts.items()
        for i, count in enumerate(of)
        for size in [SIZES[i % len(SIZES)]]
    }


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_gives_the_same_labels(truth, tmp_path, form):
    dataset = data.load(FORMATS[form](tmp_path, truth), 3)
    assert dataset.kind == "boxes" and dataset.class_names == NAMES and not dataset.warnings
    for split in ("train", "test"):
        made = [of for (s, _), of in truth.items() if s == split]
        expected = {np.asarray(picture_of(*of)).tobytes(): expected_label(*of, 5) for of in made}
        read = dataset.split(split)
        assert len(read) == len(expected)
        for i in range(len(read)):
            image, label = read.example(i)
            assert label.dtype == np.float32
            np.testing.assert_array_equal(label, expected.pop(image.tobytes()))
            present = np.isin(np.arange(3), label[:, 0])
            np.testing.assert_array_equal(read.labels[i], present)


def written(files, picture="a.png"):
    """Makes a function that writes files by name and a picture of 20x10 pixels into a folder."""

    def write(root):
        for name, content in files.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        (root / picture).parent.mkdir(exist_ok=True)
        Image.new("RGB", (20, 10)).save(root / picture)

    return write


def coco(change=lambda content: content, text=None):
    """COCO's file of one picture and one object, but for a change."""
    content = {
        "images": [{"id": 1, "file_name": "a.png", "width": 20, "height": 10}],
        "annotations": [{"image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4]}],
        "categories": [{"id": 3, "name": "cat"}],
    }
    change(content)
    return written({"boxes.json": text or json.dumps(content)})


def yolo(labels="0 0.5 0.5 0.2 0.2", yaml="train: images\nnames: [cat]"):
    return written({"labels/a.txt": labels, "data.yaml": yaml}, "images/a.png")


def voc(inside="", head="", encoding="utf-8"):
    text = f"{head}<annotation><filename>a.png</filename>{inside}</annotation>"
    return written({"a.xml": text.encode(encoding)})


def table(*rows, head="image,xmin,ymin,xmax,ymax,class,split\na.png,1,2,3,4,cat,train"):
    return written({"rows.csv": "\n".join([head, *rows])})


def hub(**objects):
    """A data set of the Hub of one picture and these lists of its objects."""
    rows = [{"image": Image.new("RGB", (20, 10)), "objects": objects}]
    return lambda root: datasets.Dataset.from_list(rows).save_to_disk(root)


def opened(root, task="auto", **fields):
    """Opens the table in a folder, or the folder."""
    table, saved = root / "rows.csv", (root / "state.json").exists()
    name = f"table:{table}" if table.exists() else f"{'hf' if saved else 'folder'}:{root}"
    return data.load(name, 3, DataConfig(**{"test_percent": 0, **fields}), task)


BOMB = '<!DOCTYPE a [<!ENTITY b "bbbbbbbb"><!ENTITY c "&b;&b;">]>'
HOSTILE = {  # how files are damaged, and what the message says
    "yolo: nan": (yolo("0 0.5 0.5 0.2 0.2\n\n0 nan 0.5 0.2 0.2"), r"a class and four finite numbers. Received: .'cat', None, 0.5.* object 2 of 'images/a.png' in 'labels/a.txt'"),
    "yolo: pixels": (yolo("0 50 50 20 20"), "must have an area inside their pictures. Received: 1 without one, in images/a.png"),
    "yolo: bytes": (yolo(b"\xff\xfe"), "a.txt' is damaged .'utf-8' codec can't decode"),
    "yolo: no names": (yolo(yaml="train: images\nnames:"), "data.yaml' must name all classes from 0 up"),
    "yolo: twice": (yolo(yaml="train: images\nnames: [cat, cat]"), "needs objects, distinct class names"),
    "yolo: huge": (yolo(yaml="names: [a]\n" + "#" * 2**18), "bytes are more than"),
    "coco: nan": (coco(lambda c: c["annotations"][0].update(bbox=[1, float("nan"), 3, 4])), "four finite numbers. Received: .'cat', 1, nan.* object 1 of 'a.png' in 'boxes.json'"),
    "coco: no image": (coco(lambda c: c["annotations"][0].update(image_id=9)), "boxes.json. needs COCO.* annotations .*Received: KeyError.9.$"),
    "coco: an image twice": (coco(lambda c: c["images"].append({"id": 1, "file_name": "b.png"})), "an id or a name twice"),
    "coco: no file": (coco(lambda c: c["images"][0].update(file_name="b.png")), "must be one file below .*'b.png' in 'boxes.json', which matches none"),
    "voc: bomb": (voc(head=BOMB), "a.xml' cannot be read as XML .*must not define entities"),
    "voc: wide letters": (voc(head=BOMB, encoding="utf-16"), "cannot be read as XML|needs files of one format"),
    "voc: deep": (voc("<a>" * 10**5 + "</a>" * 10**5), "needs objects"),
    "table: half": (table("a.png,1,,3,4,cat,train"), "object 2 of 'a.png' in 'rows.csv'"),
    "hub: three numbers": (hub(bbox=[[1.0, 2.0, 3.0]], label=["cat"]), "four finite numbers. Received: .* object 1 of 'hf:.* train.0.'$"),
    "nothing": (written({}), "A folder of boxes needs files of one format: YOLO"),
    "table: two splits": (table("a.png,1,2,3,4,cat,test"), "must be in one split. Received: 'a.png'"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_damaged_annotations_are_named(tmp_path, case):
    write, message = HOSTILE[case]
    write(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        opened(tmp_path, "boxes")


PAIR = VOC_OBJECT.format("cat", 0, 1, 2, 4, 6) + VOC_OBJECT.format("cat", 1, 5, 5, 9, 7)
FLAGGED = {
    "coco": (1, coco(lambda c: c["annotations"].append({**c["annotations"][0], "iscrowd": 1, "bbox": [5, 5, 4, 2]}))),
    "coco of texts": (1, coco(lambda c: (c["annotations"][0].update(iscrowd="0"), c["annotations"].append({**c["annotations"][0], "iscrowd": "1", "bbox": [5, 5, 4, 2]})))),
    "voc": (2, voc(f"<size><width>20</width><height>10</height></size>{PAIR}")),
    "table": (1, table("a.png,20,10,1,2,4,6,cat,0", "a.png,20,10,5,5,9,7,cat,1", head="image,width,height,xmin,ymin,xmax,ymax,class,is_crowd")),
}  # fmt: skip


@pytest.mark.parametrize("form", FLAGGED)
def test_crowds_and_difficult_objects_are_evaluated_but_not_learned(tmp_path, form):
    flag, write = FLAGGED[form]
    write(tmp_path)
    dataset = opened(tmp_path)
    assert dataset.notes[-1].startswith("2 objects, 1 of them crowds or difficult")
    split = dataset.split("train")
    options = {"image_size": (8, 8), "preprocessing": PIXELS, "batch": 1}
    expected = np.array([[0, 0.125, 0.4, 0.15, 0.4, 0], [0, 0.35, 0.6, 0.2, 0.2, flag]], "float32")
    ((_, labels),) = data.eval_batches(split, **options)
    np.testing.assert_array_equal(labels[0], expected)
    expected[1, 0] = -1
    ((_, targets),) = data.eval_batches(split, num_classes=1, task=Task("boxes"), **options)
    for learned in (targets, batches(split, {})[1]):
        np.testing.assert_array_equal(learned[0], expected[:, :5])


def test_boxes_that_are_wrong_are_cut_or_left_out_and_counted(tmp_path):
    boxes = [[-4, 2, 9, 30], [1, 2, 4, 6], [0, 0, 1e9, 1e9]]
    wrong = [boxes[1], [3, 3, 3, 9], [30, 2, 40, 6], [9, 5, 2, 7]]
    rows = [",".join(map(str, ["a.png", *box, "cat"])) for box in boxes + wrong]
    rows.append("empty.png,nan,NaN,,,")
    table(*rows, head="image,xmin,ymin,xmax,ymax,class")(tmp_path)
    Image.new("RGB", (20, 10)).save(tmp_path / "empty.png")
    dataset = opened(tmp_path)
    assert dataset.warnings == (
        "boxes that exceed their picture are cut at its edge (2), in a.png",
        "boxes without an area in their picture are left out (3), in a.png",
        "boxes that occur twice count once (1), in a.png",
    )
    assert "3 objects" in dataset.notes[-1] and "1 of 2 pictures have none" in dataset.notes[-1]
    split = dataset.split("train")
    labels = [split.example(i)[1] for i in range(2)]
    clipped = np.clip(np.array(boxes) / [20, 10, 20, 10], 0, 1)
    np.testing.assert_allclose([in_corners(row[1:5]) for row in labels[0]], clipped, atol=1e-7)
    assert (labels[1] == [-1, 0, 0, 0, 0, 0]).all() and split.labels.tolist() == [[1], [0]]


POLYGON, KEYPOINTS = "\ufeff0 0.2 0.4 0.6 0.5 0.3 0.9", "0 0.4 0.65 0.4 0.5 0.1 0.1 0.9 0.2"


@pytest.mark.parametrize(("line", "more"), [(POLYGON, ""), (KEYPOINTS, "\nkpt_shape: [2, 2]")])
def test_polygons_keypoints_and_lists_of_files_of_yolo_are_read(tmp_path, line, more):
    yolo(line, "path: .\ntrain: list.txt\nval: [images]\nnames: {0: cat}" + more)(tmp_path)
    (tmp_path / "list.txt").write_text("./images/a.png\n")
    dataset = opened(tmp_path)
    for split in ("train", "val"):
        (row,) = dataset.split(split).example(0)[1]
        np.testing.assert_allclose(row, [0, 0.4, 0.65, 0.4, 0.5, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("sides", "warning"),
    [
        ((10, 20), None),
        ((20, 10), "differ from those in their annotations: .*a.jpg.* before the pictures were turned"),
        ((40, 80), "whose sides differ from those in their annotations: .*a.jpg. Their boxes are scaled"),
        (None, None),
    ],
)  # fmt: skip
def test_sides_of_turned_pictures_are_those_of_the_upright_ones(tmp_path, sides, warning):
    """The file has 20x10 pixels, and is 10x20 when it is upright."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (20, 10), (9, 9, 9)).save(tmp_path / "a.jpg", exif=exif)
    said = {} if sides is None else {"width": sides[0], "height": sides[1]}
    coco(lambda c: c.update(images=[{"id": 1, "file_name": "a.jpg", **said}]))(tmp_path)
    dataset, review = opened(tmp_path, test_split="train"), data.Review()
    review.add_pictures([*data.survey_pictures(dataset, dataset.splits)], dataset.splits)
    assert len(review.warnings) == (warning is not None)
    assert not warning or re.search(warning, review.warnings[0])
    if not warning:
        label = dataset.split("train").example(0)[1]
        np.testing.assert_allclose(label[0, 1:5], [0.25, 0.2, 0.3, 0.2])  # of 10x20


def test_changed_boxes_are_noticed_and_boxes_are_not_packed(truth, tmp_path):
    name = write_yolo(tmp_path / "data", truth)
    for _ in range(2):
        data.check_unchanged(data.load(name, 3), tmp_path)
    (tmp_path / "data/train/labels/train1.txt").write_text("")  # of a picture that had no file
    dataset = data.load(name, 3)
    with pytest.raises(ValueError, match="train: different labels, or different names"):
        data.check_unchanged(dataset, tmp_path)
    with pytest.raises(ValueError, match="hold pictures with classes.*whose labels are boxes"):
        data.pack_shards(dataset, tmp_path / "packed")


COLORS = 200 * np.array([(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)])  # of the objects, on black
CHANGES = {
    "none": {},
    "flip": {"flip": True},
    "inception": {"crop": "inception", "flip": True},
    "bit": {"crop": "bit", "flip": True},
    "objects": {"crop": "objects", "flip": True},
    "scale and shift": {"scale": 0.4, "shift": 0.15, "flip": True},
}


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Pictures of one rectangle in each quarter, of its own color, away from all edges."""
    root, rng = tmp_path_factory.mktemp("shapes"), np.random.default_rng(3)
    rows = []
    for number in range(8):
        pixels = np.zeros((80, 96, 3), "uint8")
        for kind, (top, left) in enumerate([(0, 0), (0, 48), (40, 0), (40, 48)]):
            y, x = top + rng.integers(6, 14), left + rng.integers(6, 18)
            height, width = rng.integers(10, 20), rng.integers(12, 24)
            pixels[y : y + height, x : x + width] = COLORS[kind]
            rows.append([f"{number}.png", x, y, x + width, y + height, f"c{kind}", "train"])
        Image.fromarray(pixels).save(root / f"{number}.png")
    with open(root / "rows.csv", "w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return data.load(f"table:{root / 'rows.csv'}", 3, DataConfig(test_percent=0)).split("train")


def compare_with_pixels(images, targets, slack_px):
    """Compares boxes with the pixels of the color of their object, and returns how many."""
    compared = 0
    for image, rows in zip(images, targets):
        size = np.array([image.shape[1], image.shape[0]] * 2)
        boxes = {int(row[0]): in_corners(row[1:5]) * size for row in rows if row[0] >= 0}
        for kind, color in enumerate(COLORS):
            alike = (abs(image - color) < 20).all(axis=-1)
            ys, xs = np.nonzero(alike)
            if kind in boxes:
                inner = boxes[kind] + [slack_px, slack_px, -slack_px, -slack_px]
                x0, y0, x1, y1 = inner.round().astype(int)
                if min(x1 - x0, y1 - y0) > 1:
                    assert alike[y0:y1, x0:x1].all()
            if len(ys) < 30:
                continue
            extent = np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1])
            cut = extent[[0, 1]].min() == 0 or (extent[2:] == size[:2]).any()
            if kind in boxes:
                assert abs(extent - boxes[kind]).max() <= slack_px
                compared += 1
            else:
                assert cut  # a whole object is never lost
    return compared


@pytest.mark.parametrize("change", CHANGES)
def test_boxes_change_as_their_pictures_do(shapes, change):
    images, targets = batches(shapes, CHANGES[change])
    assert targets.shape == (48, 4, 5) and targets.dtype == np.float32
    assert compare_with_pixels(images, targets, 4.5) > 40


@pytest.mark.parametrize("fraction", [None, 0.6])
def test_an_evaluation_has_the_boxes_of_what_the_model_sees(shapes, fraction):
    preprocessing = dataclasses.replace(PIXELS, crop_fraction=fraction)
    options = {"image_size": (120, 120), "preprocessing": preprocessing, "batch": 8}
    ((images, labels),) = data.eval_batches(shapes, **options)
    assert labels.shape == (8, 4, 6)
    assert compare_with_pixels(images, labels, 2.5) > 10


def test_crops_around_objects_are_those_of_torchvision():
    """The share of whole pictures, and the mean sides of the others, of many draws."""
    torch, tv_tensors = map(peer, ("torch", "torchvision.tv_tensors"))
    v2 = peer("torchvision.transforms.v2")
    height, width, draws = 90, 120, 300
    corners = np.array([[10, 12, 50, 70], [60, 5, 112, 40], [80, 60, 96, 82.0]])
    boxes = tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=(height, width))
    torch.manual_seed(0)
    theirs, pair = [], [boxes, tv_tensors.Image(torch.zeros(3, height, width))]
    for _ in range(draws):
        made = v2.RandomIoUCrop().make_params(pair)
        theirs.append((made.get("height", height), made.get("width", width)))
    low, high = np.hsplit(corners / [width, height, width, height], 2)
    label = np.zeros((4, 6), "float32")
    label[:, 0] = [0, 1, 2, -1]
    label[:3, 1:5] = np.hstack([(low + high) / 2, high - low])
    ours, rng, middle = [], np.random.default_rng(0), (corners[:, :2] + corners[:, 2:]) / 2
    for _ in range(draws):
        top, left, h, w = object_window((height, width), label, rng)
        assert 0 <= top <= height - h and 0 <= left <= width - w
        center = middle - [left, top]
        assert ((center > -1e-4) & (center < np.array([w, h]) + 1e-4)).all(axis=1).any()
        ours.append((h, w))
    sizes = np.array([ours, theirs], float)  # (2, draws, 2)
    whole = (sizes == [height, width]).all(axis=-1)
    assert abs(np.diff(whole.mean(axis=1))) < 0.08  # 3 deviations of the difference
    sides = [(of[~is_whole] / [height, width]).mean(axis=0) for of, is_whole in zip(sizes, whole)]
    np.testing.assert_allclose(*sides, atol=0.04)
    assert object_window((40, 30), np.full((2, 6), -1, "float32"), rng) == (0, 0, 40, 30)
