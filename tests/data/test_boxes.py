# ruff: noqa: E501 - rows of tables of cases
"""Boxes: five formats, and hostile annotations."""

import json
import re

import numpy as np
import pytest
from PIL import Image

from tests.data.box_pictures import (
    FORMATS,
    NAMES,
    PIXELS,
    SIZES,
    VOC_OBJECT,
    batches,
    expected_label,
    in_corners,
    objects_of,
    picture_of,
    write_coco,
    write_yolo,
)
from vit_keras import commands, data
from vit_keras.config import AugmentConfig, Config, DataConfig
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.once


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
    (tmp_path / "data").mkdir()
    dataset = data.load(FORMATS[form](tmp_path / "data", truth), 3)
    assert dataset.kind == "boxes" and dataset.class_names == NAMES and not dataset.warnings
    for split in ("train", "test"):
        expected = {
            np.asarray(picture_of(*of)).tobytes(): expected_label(*of, 5)
            for (s, _), of in truth.items()
            if s == split
        }
        read = dataset.split(split)
        assert len(read) == len(expected)
        for i in range(len(read)):
            image, label = read.example(i)
            assert label.dtype == np.float32
            np.testing.assert_array_equal(label, expected.pop(image.tobytes()))
            present = np.isin(np.arange(3), label[:, 0])
            np.testing.assert_array_equal(read.labels[i], present)


def test_objects_of_coco_are_those_of_its_own_reader(truth, tmp_path):
    reader = pytest.importorskip("pycocotools.coco").COCO
    dataset, count = data.load(write_coco(tmp_path, truth), 3), 0
    for name in ("train", "test"):
        split = dataset.split(name)
        theirs = reader(str(tmp_path / f"annotations/instances_{name}2017.json"))
        ids, images = sorted(theirs.getCatIds()), theirs.loadImgs(theirs.getImgIds())
        numbers = {split.name(i).rsplit("/", 1)[-1]: i for i in range(len(split))}
        for image in images:
            ours = split.example(numbers[image["file_name"]])[1]
            rows = theirs.loadAnns(theirs.getAnnIds(imgIds=image["id"]))
            ours, count = ours[ours[:, 0] >= 0], count + len(rows)
            assert ours[:, 0].tolist() == [ids.index(row["category_id"]) for row in rows]
            sides = [image["width"], image["height"]]
            for (x, y, width, height), row in zip(ours[:, 1:5] * np.tile(sides, 2), rows):
                box = [x - width / 2, y - height / 2, width, height]
                np.testing.assert_allclose(box, row["bbox"], atol=1e-4)
        assert dataset.class_names == tuple(row["name"] for row in theirs.loadCats(ids))
    assert count == sum(len(objects) for _, objects in truth.values())


def coco(change=lambda content: content, text=None):
    """Damages COCO's file, whose content is one picture and one object."""

    def damage(root):
        content = {
            "images": [{"id": 1, "file_name": "a.png", "width": 20, "height": 10}],
            "annotations": [{"image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4]}],
            "categories": [{"id": 3, "name": "cat"}],
        }
        change(content)
        (root / "boxes.json").write_text(text or json.dumps(content))

    return damage


def yolo(labels="0 0.5 0.5 0.2 0.2", yaml="train: images\nnames: [cat]"):
    def damage(root):
        for name, text in (("images/a.txt", labels), ("data.yaml", yaml)):
            (root / name.replace("images", "labels")).parent.mkdir(exist_ok=True)
            (root / name.replace("images", "labels")).write_text(text)
        (root / "images").mkdir()
        (root / "a.png").rename(root / "images" / "a.png")

    return damage


def voc(inside="", head="", encoding="utf-8"):
    def damage(root):
        text = f"{head}<annotation><filename>a.png</filename>{inside}</annotation>"
        (root / "a.xml").write_bytes(text.encode(encoding))

    return damage


def table(*lines):
    def damage(root):
        rows = ["image,xmin,ymin,xmax,ymax,class,split", "a.png,1,2,3,4,cat,train", *lines]
        (root / "rows.csv").write_text("\n".join(rows))

    return damage


def with_box(box):
    return coco(lambda content: content["annotations"][0].update(bbox=box))


BOMB = '<!DOCTYPE a [<!ENTITY b "bbbbbbbb"><!ENTITY c "&b;&b;">]>'
ONE = VOC_OBJECT.format("cat", 0, 1, 2, 3, 4)
HOSTILE = {  # how files are damaged, and what the message says
    "yolo: no number": (yolo("0 a 0.5 0.2 0.2"), r"Line 1 of '.*labels/a.txt' must hold a class from 0 to 0.*'0 a"),
    "yolo: nan": (yolo("0 0.5 0.5 0.2 0.2\n\n0 nan 0.5 0.2 0.2"), "Line 3 of"),
    "yolo: infinite": (yolo("0 inf 0.5 0.2 0.2"), "Line 1 of"),
    "yolo: another class": (yolo("1 0.5 0.5 0.2 0.2"), "Line 1 of .* must hold a class from 0 to 0"),
    "yolo: pixels": (yolo("0 50 50 20 20"), "must have an area in their pictures. Received: 1 boxes without one, in images/a.png"),
    "yolo: half a class": (yolo("0.5 0.5 0.5 0.2 0.2"), "Line 1 of"),
    "yolo: a probability": (yolo("0 0.5 0.5 0.2 0.2 0.9"), "Line 1 of"),
    "yolo: two points": (yolo("0 0.5 0.5 0.2"), "Line 1 of"),
    "yolo: bytes": (lambda root: (yolo()(root), (root / "labels/a.txt").write_bytes(b"\xff\xfe")), "a.txt' is damaged .it is not UTF-8"),
    "yolo: no names": (yolo(yaml="train: images\nnames:"), "data.yaml' must name all classes from 0 on"),
    "yolo: no text": (yolo(yaml="train: images\nnames: [no]"), "as texts in quotes. Received: names=.False"),
    "yolo: a gap": (yolo(yaml="train: images\nnames: {0: cat, 2: dog}"), "must name all classes from 0"),
    "yolo: twice": (yolo(yaml="train: images\nnames: [cat, cat]"), "needs objects, a name for each class"),
    "yolo: circle": (yolo(yaml="train: images\nnames: &a [*a]"), "more than 10000 values|must name all"),
    "yolo: huge": (yolo(yaml="names: [a]\n" + "#" * 2**18), "bytes are more than"),
    "yolo: no place": (yolo(yaml="train: pictures\nnames: [cat]"), "no picture and no folder at '.*pictures'"),
    "yolo: no training": (yolo(yaml="val: images\nnames: [cat]"), "needs pictures of the split train"),
    "yolo: no objects": (yolo(""), "needs objects, a name for each class"),
    "coco: nan": (with_box([1, float("nan"), 3, 4]), r"annotations\[0\] of .*boxes.json. must have the ids .* four finite numbers as bbox.*nan"),
    "coco: infinite": (with_box([1, 2, 3, float("inf")]), "four finite numbers as bbox.*inf"),
    "coco: three": (with_box([1, 2, 3]), "four finite numbers as bbox"),
    "coco: text": (with_box("1234"), r"annotations\[0\] of .* must be an object with image_id, category_id, bbox"),
    "coco: texts": (with_box(["1", 2, 3, 4]), "four finite numbers as bbox"),
    "coco: true": (with_box([True, 2, 3, 4]), "four finite numbers as bbox. Received: .*True"),
    "coco: huge": (with_box([10**400, 2, 3, 4]), "four finite numbers as bbox. Received: .*1000"),
    "coco: no box": (coco(lambda c: c["annotations"][0].pop("bbox")), r"annotations\[0\] of .* must be an object with image_id, category_id, bbox"),
    "coco: no image": (coco(lambda c: c["annotations"][0].update(image_id=9)), "must have the ids of an image and of a category.* Received: .9, 3"),
    "coco: no category": (coco(lambda c: c["annotations"][0].update(category_id=0)), "must have the ids of an image and of a category.* Received: .1, 0"),
    "coco: a list": (coco(lambda c: c["annotations"][0].update(image_id=[1])), "must be an object with image_id"),
    "coco: twice": (coco(lambda c: c["categories"].append({"id": 3, "name": "dog"})), "categories different ids and names, the same in all files"),
    "coco: an image twice": (coco(lambda c: c["images"].append({"id": 1, "file_name": "b.png"})), "Images must have different ids"),
    "coco: no categories": (coco(lambda c: c.pop("categories")), r"categories\[0\] of .*boxes.json. must be an object with id, name. Received: None"),
    "coco: no file": (coco(lambda c: c["images"][0].update(file_name="b.png")), "must be one file below .*'b.png' in 'boxes.json', which may be none"),
    "coco: a picture twice": (coco(lambda c: c["images"].append({"id": 2, "file_name": "./a.png"})), r"and each picture once. Received: .*a.png.*, 2"),
    "coco: cut off": (coco(text='{"images": [{"id": 1'), "boxes.json' is damaged .it is not JSON"),
    "coco: deep": (coco(text='{"images": [' + "[" * 10**5), "is damaged .*nest"),
    "voc: bomb": (voc(head=BOMB), "a.xml' cannot be read as XML .*without definitions"),
    "voc: wide letters": (voc(head=BOMB, encoding="utf-16"), "cannot be read as XML|needs the files of"),
    "voc: cut off": (voc("<object>"), "a.xml' cannot be read as XML .mismatched tag: line 1"),
    "voc: huge": (voc(" " * 2**20), "bytes are more than 1048576"),
    "voc: no name": (voc(ONE + VOC_OBJECT.format(" ", 0, 1, 2, 3, 4)), "Object 2 of '.*a.xml' must have a name"),
    "voc: nan": (voc(VOC_OBJECT.format("cat", 0, "nan", 2, 3, 4)), "Object 1 of .*numbers xmin, ymin, xmax"),
    "voc: no box": (voc("<object><name>cat</name></object>"), "Object 1 of"),
    "voc: deep": (voc("<a>" * 10**5 + "</a>" * 10**5), "needs objects"),
    "table: nan": (table("a.png,1,nan,3,4,cat,train"), "Each row of .*rows.csv' must hold a class and numbers in .*'', '3', '4'. in row 2"),
    "table: half": (table("a.png,1,,3,4,cat,train"), "in row 2"),
    "table: no class": (table("a.png,1,2,3,4,,train"), "in row 2"),
    "table: two splits": (table("a.png,1,2,3,4,cat,test"), "must be in one split. Received: 'a.png'"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_damaged_annotations_are_named(tmp_path, case):
    damage, message = HOSTILE[case]
    Image.new("RGB", (20, 10)).save(tmp_path / "a.png")
    damage(tmp_path)
    name = f"table:{tmp_path / 'rows.csv'}" if case.startswith("table") else f"folder:{tmp_path}"
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        data.load(name, 3, DataConfig(test_percent=0), task="boxes")


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ({"bbox": [[1.0, 2.0, 3.0]], "label": ["cat"]}, "four numbers in bbox. Received: .* in hf:.* train.0."),
        ({"bbox": [[1.0, 2.0, 3.0, float("nan")]], "label": ["cat"]}, "four numbers in bbox"),
        ({"bbox": [[1.0, 2.0, 3.0, 4.0]], "label": [None]}, "must have a class"),
        ({"bbox": [[1.0, 2.0, 3.0, 4.0]], "label": []}, "must have equal lengths. Received: .* in hf:"),
        ({"boxes": [[1.0, 2.0, 3.0, 4.0]], "label": ["cat"]}, "A column must hold objects with a bbox"),
    ],
)  # fmt: skip
def test_damaged_objects_of_the_hub_are_named(tmp_path, objects, message):
    import datasets

    rows = [{"image": Image.new("RGB", (20, 10)), "objects": objects}]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path)
    with pytest.raises(ValueError, match=message):
        data.load(f"hf:{tmp_path}", 3, task="boxes")


FLAGGED = {
    "coco": (1, coco(lambda c: c["annotations"].append({**c["annotations"][0], "iscrowd": 1, "bbox": [5, 5, 4, 2]}))),
    "voc": (2, voc(f"<size><width>20</width><height>10</height></size>{VOC_OBJECT.format('cat', 0, 1, 2, 4, 6)}{VOC_OBJECT.format('cat', 1, 5, 5, 9, 7)}")),
    "table": (1, lambda root: (root / "rows.csv").write_text(
        "image,width,height,xmin,ymin,xmax,ymax,class,is_crowd\na.png,20,10,1,2,4,6,cat,0\na.png,20,10,5,5,9,7,cat,1\n"
    )),
}  # fmt: skip


@pytest.mark.parametrize("form", FLAGGED)
def test_crowds_and_difficult_objects_are_evaluated_but_not_learned(tmp_path, form):
    flag, write = FLAGGED[form]
    Image.new("RGB", (20, 10)).save(tmp_path / "a.png")
    write(tmp_path)
    name = f"table:{tmp_path / 'rows.csv'}" if form == "table" else f"folder:{tmp_path}"
    dataset = data.load(name, 3, DataConfig(test_percent=0))
    assert dataset.notes[-1].startswith("2 objects, 1 of them crowds or difficult")
    split, options = dataset.split("train"), {"image_size": (8, 8), "preprocessing": PIXELS}
    expected = np.array(
        [[0, 2.5 / 20, 0.4, 0.15, 0.4, 0], [0, 0.35, 0.6, 0.2, 0.2, flag]], "float32"
    )
    ((_, labels),) = data.eval_batches(split, batch=1, **options)
    np.testing.assert_array_equal(labels[0], expected)
    expected[1, 0] = -1
    for made in (
        data.eval_batches(split, batch=1, num_classes=1, task=Task("boxes"), **options)[0],
        (None, batches(split, {})[1][:1]),
    ):
        np.testing.assert_array_equal(made[1][0], expected[:, :5])


def test_boxes_that_are_wrong_are_cut_or_left_out_and_counted(tmp_path):
    """Compares with clipping in NumPy, as torchvision's `ClampBoundingBoxes` does."""
    Image.new("RGB", (20, 10)).save(tmp_path / "a.png")
    Image.new("RGB", (20, 10)).save(tmp_path / "empty.png")
    boxes = [
        [-4, 2, 9, 30],
        [1, 2, 4, 6],
        [1, 2, 4, 6],
        [3, 3, 3, 9],
        [30, 2, 40, 6],
        [9, 5, 2, 7],
        [0, 0, 1e9, 1e9],
    ]
    lines = [",".join(map(str, ["a.png", *box, "cat"])) for box in boxes]
    text = "\n".join(["image,xmin,ymin,xmax,ymax,class", *lines, "empty.png,nan,NaN,,,"])
    (tmp_path / "rows.csv").write_text(text)
    dataset = data.load(f"table:{tmp_path / 'rows.csv'}", 3, DataConfig(test_percent=0))
    assert dataset.warnings == (
        "boxes that leave their picture are cut at its edge (2), in a.png",
        "boxes without an area in their picture are left out (3), in a.png",
        "boxes that are there twice count once (1), in a.png",
    )
    assert "3 objects" in dataset.notes[-1] and "1 of 2 pictures have none" in dataset.notes[-1]
    split = dataset.split("train")
    labels = [split.example(i)[1] for i in range(2)]
    clipped = np.clip(np.array(boxes)[[0, 1, 6]] / [20, 10, 20, 10], 0, 1)
    np.testing.assert_allclose([in_corners(row[1:5]) for row in labels[0]], clipped, atol=1e-7)
    assert (labels[1] == [-1, 0, 0, 0, 0, 0]).all() and split.labels.tolist() == [[1], [0]]


def test_polygons_and_lists_of_files_of_yolo_are_read(tmp_path):
    Image.new("RGB", (20, 10)).save(tmp_path / "a.png")
    yolo("0 0.2 0.4 0.6 0.5 0.3 0.9", "path: .\ntrain: list.txt\nval: [images]\nnames: {0: cat}")(
        tmp_path
    )
    (tmp_path / "list.txt").write_text("./images/a.png\n")
    dataset = data.load(f"folder:{tmp_path}", 3)
    for split in ("train", "val"):
        (row,) = dataset.split(split).example(0)[1]
        np.testing.assert_allclose(row, [0, 0.4, 0.65, 0.4, 0.5, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("sides", "warning"),
    [
        ((10, 20), None),
        ((20, 10), "give their sides before they are turned upright: .*a.jpg, so their boxes"),
        ((40, 80), "that have other sides than their annotations say: .*a.jpg. Their boxes are scaled"),
    ],
)  # fmt: skip
def test_sides_of_turned_pictures_are_those_of_the_upright_ones(tmp_path, sides, warning):
    """The file has 20x10 pixels, and is 10x20 when it is upright."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (20, 10), (9, 9, 9)).save(tmp_path / "a.jpg", exif=exif)

    def change(content):
        content["images"][0].update(file_name="a.jpg", width=sides[0], height=sides[1])

    coco(change)(tmp_path)
    config = DataConfig(test_percent=0, test_split="train")
    dataset, review = data.load(f"folder:{tmp_path}", 3, config), data.Review()
    pictures = list(data.survey_pictures(dataset, dataset.splits))
    review.add_pictures(pictures, dataset.splits)
    assert (
        [bool(re.search(warning, text)) for text in review.warnings] == [True]
        if warning
        else not review.warnings
    )
    coco(lambda c: (change(c), [c["images"][0].pop(side) for side in ("width", "height")]))(
        tmp_path
    )
    split = data.load(f"folder:{tmp_path}", 3, config).split("train")
    np.testing.assert_allclose(split.example(0)[1][0, 1:5], [0.25, 0.2, 0.3, 0.2])  # of 10x20


def test_changed_boxes_are_noticed(truth, tmp_path):
    name = write_yolo(tmp_path / "data", truth)
    (tmp_path / "run").mkdir()
    for _ in range(2):
        data.check_unchanged(data.load(name, 3), tmp_path / "run")
    path = tmp_path / "data/train/labels/train1.txt"
    path.write_text("")  # of a picture that had no file
    with pytest.raises(ValueError, match="train: as many images, but other names, sizes or cont"):
        data.check_unchanged(data.load(name, 3), tmp_path / "run")


def test_boxes_are_refused_where_they_do_not_fit(truth, tmp_path):
    dataset = data.load(write_yolo(tmp_path, truth), 3)
    with pytest.raises(ValueError, match="Shards hold pictures of classes.*whose labels are boxes"):
        data.pack_shards(dataset, tmp_path / "packed")
    for task, changes, message in (
        ("classes", {"crop": "objects"}, "`augment.crop` and `task`: crops of objects need task boxes"),
        ("boxes", {"rotation_degrees": 5}, "`augment.rotation_degrees` must be 0.0 with `task` boxes"),
        ("boxes", {"mixup_alpha": 0.2}, "`augment.mixup_alpha` must be 0.0 with `task` boxes"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            Config(task=task, augment=AugmentConfig(**changes))
    with pytest.raises(ValueError, match="A folder of boxes needs the files of YOLO"):
        data.load(f"folder:{tmp_path / 'train'}", 3, task="boxes")


def test_check_reports_and_draws_boxes(truth, tmp_path):
    write_yolo(tmp_path / "data", truth)
    path = tmp_path / "data/train/labels/train0.txt"
    path.write_text(path.read_text() + "0 0.9 0.5 0.4 0.2\n")
    options = ["--model.variant", "Ti/16", "--model.image_size", "32", "--augment.flip", "true"]
    out = [f"--out={tmp_path / name}" for name in ("sheet.png", "report.json")]
    commands.run(["check", str(tmp_path / "data"), *options, *out])
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["kind"] == "boxes" and report["classes"] == list(NAMES)
    first = "boxes that leave their picture are cut at its edge (1), in train/images/train0.png"
    assert first in report["warnings"] and not report["problems"]
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"), int)
    assert (np.ptp(sheet[:, :, :], axis=-1) > 60).mean() > 0.01  # colored lines on gray pictures
