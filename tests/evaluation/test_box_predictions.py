"""Judges, chooses thresholds of, tiles and writes boxes: beside pycocotools and formulas."""

import csv
import dataclasses
import io
import json

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from vit_keras import data, evaluation
from vit_keras.evaluation.predictors import Predictor
from vit_keras.evaluation.reports import headline, report_table, summary_line
from vit_keras.models import Preprocessing
from vit_keras.support import box_metrics as support
from vit_keras.support.box_metrics import Boxes
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.once
NAMES = ("bird", "car", "dog")
SIZE = (120, 90)
COLORS = (80, 160, 240)  # the level of an object of each class


def draw_labels(rng, pictures, most=6):
    """Labels `(N, M, 6)` of 0 to M objects with a few that do not count."""
    centers, sides = rng.uniform(0.25, 0.75, (2, pictures, most, 2))
    classes = rng.integers(-1, len(NAMES), (pictures, most, 1))
    flags = rng.choice([0, 0, 0, 0, 1, 2], (pictures, most, 1))
    return np.concatenate([classes, centers, sides * 0.5, flags], axis=-1).astype("float32")


def near(rng, label, alarms=4):
    """Predictions near the objects of a label, some of other classes, and false alarms."""
    true = support.boxes_of(label, SIZE)
    count = len(true.classes)
    wrong = rng.random(count) < 0.2
    classes = np.where(wrong, rng.integers(0, len(NAMES), count), true.classes)
    corners = true.corners + rng.normal(0, 2, true.corners.shape)
    low = rng.uniform(0, 50, (alarms, 2))
    others = np.concatenate([low, low + rng.uniform(5, 40, (alarms, 2))], axis=-1)
    return Boxes(
        np.concatenate([classes, rng.integers(0, len(NAMES), alarms)]),
        np.concatenate([rng.uniform(0.3, 1, count), rng.uniform(0, 0.7, alarms)]).astype("float32"),
        np.concatenate([corners, others]),
    )


def of_pycocotools(labels, predicted):
    """COCO's figures of these boxes, by its own readers."""
    width, height = SIZE
    annotations, results = [], []
    for picture, rows in enumerate(labels):
        for k, x, y, w, h, flag in rows[rows[:, 0] >= 0].astype(float):
            box = [(x - w / 2) * width, (y - h / 2) * height, w * width, h * height]
            about = {"id": len(annotations) + 1, "area": box[2] * box[3], "iscrowd": int(flag != 0)}
            annotations.append({"image_id": picture, "category_id": int(k), "bbox": box, **about})
    for picture, boxes in enumerate(predicted):
        for k, score, (left, top, right, bottom) in zip(*boxes):
            box = [float(left), float(top), float(right - left), float(bottom - top)]
            about = {"image_id": picture, "category_id": int(k), "score": float(score)}
            results.append({**about, "bbox": box})
    truth, kinds = COCO(), [{"id": k, "name": name} for k, name in enumerate(NAMES)]
    images = [{"id": picture} for picture in range(len(labels))]
    truth.dataset = {"images": images, "annotations": annotations, "categories": kinds}
    truth.createIndex()
    judged = COCOeval(truth, truth.loadRes(results), "bbox")
    for step in (judged.evaluate, judged.accumulate, judged.summarize):
        step()
    return judged.stats


def test_a_report_equals_pycocotools(rng):
    labels = draw_labels(rng, 30)
    labels[0, :, 0] = -1  # a picture without objects
    predicted = [near(rng, label) for label in labels]
    predicted[1] = predicted[1].chosen(slice(0, 0))
    true = [support.boxes_of(label, SIZE) for label in labels]
    metrics = evaluation.report_boxes(true, predicted, NAMES, Task("boxes"))
    stats = of_pycocotools(labels, predicted)
    assert 0.1 < stats[0] < 0.9
    for name, value in zip(support.FIGURES, stats):
        assert metrics[name] == pytest.approx(value if value >= 0 else None), name
    assert f"AP50 {100 * stats[1]:.2f}%" in headline(metrics)
    assert f"AP {100 * stats[0]:.2f}%" in summary_line(metrics)
    assert report_table(metrics).splitlines()[2].split()[0] == "car"
    countable = (labels[..., 0] >= 0) & (labels[..., 5] == 0)
    counts = [int((countable & (labels[..., 0] == k)).sum()) for k in range(3)]
    assert [row["objects"] for row in metrics["boxes"]] == counts


def test_thresholds_have_the_best_f1(rng):
    """On a row of squares, each prediction covers one object exactly, or none."""
    true, predicted, flags = [], [], []
    for _ in range(40):
        left = 10.0 * np.arange(8)
        corners = np.stack([left, 0 * left, left + 9, 0 * left + 9], axis=-1)
        is_there, hits = rng.random(8) < 0.6, rng.random(8) < 0.85
        scores = np.clip(rng.normal(np.where(is_there, 0.6, 0.35), 0.12), 0, 1).astype("float32")
        true.append(Boxes(np.zeros(8, int), np.ones(8), corners).chosen(is_there))
        predicted.append(Boxes(np.zeros(8, int), scores, corners).chosen(hits))
        flags.append((scores[hits], is_there[hits]))
    scores, right = map(np.concatenate, zip(*flags))
    objects = sum(len(boxes.scores) for boxes in true)

    def f1(threshold):
        present = scores >= threshold
        return 2 * right[present].sum() / (present.sum() + objects)

    (chosen, other) = evaluation.best_box_thresholds(true, predicted, 2)
    assert f1(chosen) > max(map(f1, np.unique(scores))) - 0.01 and other == 0.5
    task = Task("boxes", thresholds=(chosen, other))
    row, _ = evaluation.report_boxes(true, predicted, NAMES[:2], task)["boxes"]
    assert 2 / (1 / row["precision"] + 1 / row["recall"]) == pytest.approx(f1(chosen))


def test_confusion_counts_misses_and_false_alarms_and_leaves_crowds_out():
    square = lambda left: [left, 0.0, left + 10.0, 10.0]
    corners = np.array([*map(square, (0, 20, 40, 60))])
    true = Boxes(np.array([0, 1, 2, 1]), np.array([1, 1, 1, 0.0]), corners)
    corners = np.array([square(1), square(20), square(61), square(90)])
    predicted = Boxes(np.array([0, 2, 0, 1]), np.array([0.9, 0.8, 0.9, 0.9]), corners)
    metrics = evaluation.report_boxes([true], [predicted], NAMES, Task("boxes"))
    expected = np.zeros((4, 4), int)
    expected[0, 0] = expected[1, 2] = 1  # a hit, and a car that is called a dog
    expected[2, 3] = expected[3, 1] = 1  # a missed dog, and a false car
    assert metrics["confusion_matrix"] == expected.tolist()
    hits, misses, alarms = evaluation.errors_of(true, predicted)
    assert [x.classes.tolist() for x in (hits, misses, alarms)] == [[0], [1, 2], [2, 1]]


def by_level(images):
    """Finds the rectangle of each level of `COLORS` in images `(B, H, W, 1)`, as exact answers."""
    answers = np.zeros((len(images), len(COLORS), len(NAMES) + 4), "float32")
    for answer, image in zip(answers, images[..., 0]):
        for k, level in enumerate(COLORS):
            y, x = np.nonzero(abs(image - level) < 1)
            if len(y):
                ends = np.array([x.min(), y.min(), x.max() + 1, y.max() + 1])
                answer[k, k] = 0.6 + len(y) / 1e4 * (-1) ** k
                answer[k, 3:] = ends / np.tile(image.shape[::-1], 2)
    return answers


def predictor_of(size=(32, 32)):
    plain = Preprocessing(mean=(0.0,), std=(1 / 255,))
    return Predictor(by_level, (*size, 1), 3, plain, True, NAMES, task=Task("boxes"))


@pytest.mark.parametrize("overlap", [0.5, 0.7])
def test_tiles_find_each_object_of_a_large_picture_once(rng, overlap):
    picture = np.zeros((150, 113, 1), "uint8")
    expected = []
    for top in range(3, 140, 48):  # so that a tile sees one object of each class
        for k, left in enumerate((2, 40, 90)):
            height, width = rng.integers(6, 15, 2)
            picture[top : top + height, left : left + width] = COLORS[k]
            expected.append((k, left, top, left + width, top + height))
    options = evaluation.TileOptions(tiles=True, overlap=overlap, batch=3)
    (found,) = evaluation.predict_boxes(predictor_of(), [picture], options)
    found = found.chosen(found.scores > 0.5)
    rows = sorted((int(k), *map(round, corners)) for k, _, corners in zip(*found))
    assert rows == sorted(expected)
    small = picture[:20, :20]
    (found,) = evaluation.predict_boxes(predictor_of(), [small], options)
    assert found.chosen(found.scores > 0.5).corners.round().tolist() == [[*expected[0][1:]]]


def test_all_formats_hold_the_same_boxes(tmp_path):
    files = [tmp_path / f"p{number}.png" for number in range(3)]
    for file, kinds in zip(files, [(0, 2), (1,), ()]):
        picture = np.zeros((90, 60), "uint8")
        for k in kinds:
            picture[10 + 20 * k : 25 + 20 * k, 12:33] = COLORS[k]
        Image.fromarray(picture).save(file)
    files.append(tmp_path / "torn.png")
    files[-1].write_bytes(b"no picture")
    predictor, text = predictor_of((90, 60)), {}
    for form in ("jsonl", "csv", "coco", "table", "html"):
        rows = evaluation.predict_files(predictor, files, threshold=0.5, on_error="skip")
        file = io.BytesIO()
        evaluation.write_file_predictions(rows, file, form, "boxes", names=NAMES)
        text[form] = file.getvalue().decode()

    lines = [json.loads(line) for line in text["jsonl"].splitlines()]
    assert [row["path"] for row in lines] == list(map(str, files))
    called = [sorted(b["name"] for b in row["boxes"]) for row in lines]
    assert called == [["bird", "dog"], ["car"], [], []]
    boxes = [b for row in lines for b in row["boxes"]]
    places = [b["corners"] for b in boxes]
    np.testing.assert_allclose(sorted(places)[0], [12, 10, 33, 25], atol=0.01)
    table = [*csv.DictReader(io.StringIO(text["csv"]))]
    corners = [[float(row[c]) for c in ("left", "top", "right", "bottom")] for row in table[:3]]
    np.testing.assert_allclose(corners, places, rtol=1e-6)
    assert [bool(row["error"]) for row in table] == [False] * 4 + [True]
    (tmp_path / "found.json").write_text(text["coco"])
    coco = COCO(str(tmp_path / "found.json"))
    corners = [[*a["bbox"][:2], *np.add(a["bbox"][:2], a["bbox"][2:])] for a in coco.anns.values()]
    np.testing.assert_allclose(corners, places, rtol=1e-5)
    names = [coco.cats[a["category_id"]]["name"] for a in coco.anns.values()]
    assert names == [b["name"] for b in boxes]
    shown = text["table"].splitlines()
    assert "car 5" in shown[1] and "[12, 30, 33, 45]" in shown[1] and shown[2].endswith("nothing")
    assert text["html"].count("<figure") == 4


def test_the_worst_pictures_are_drawn_without_a_second_prediction(tmp_path):
    """The second of two pictures is the worst: its object is missed, where the label is red."""
    pixels = np.zeros((2, 32, 32, 1), "uint8")
    pixels[:, 8:16, 8:16] = COLORS[0]
    labels = np.array([[[0, 0.375, 0.375, 0.25, 0.25, 0]], [[1, 0.75, 0.75, 0.25, 0.25, 0]]])
    calls = []
    predictor = predictor_of()
    run = lambda images: calls.append(len(images)) or by_level(images)
    counted = dataclasses.replace(predictor, run=run)
    split, sheet = data.from_arrays(pixels, labels), tmp_path / "sheet.png"
    metrics = evaluation.evaluate(counted, split, NAMES, batch=2, sheet=sheet)
    assert sum(calls) == 8 and metrics["images"] == 2  # one call, filled to the size of a batch
    drawn = np.asarray(Image.open(sheet))
    red = (drawn == (230, 25, 75)).all(axis=-1)
    assert red[20:, 36:68].any() and not red[:, 72:].any()  # panels are 32 wide, and 4 apart
