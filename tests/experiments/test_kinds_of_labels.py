"""Each kind of label from end to end: train, stop and go on, evaluate, export, predict."""

import csv
import json
import shutil

import numpy as np
import pyarrow
import pyarrow.csv
import pytest
import sklearn.metrics as reference
from PIL import Image
from sklearn.datasets import load_digits

import vit_keras
from tests.data.mask_pictures import write_folder, write_pair
from tests.helpers import GOLDEN, randomize
from tests.training.small import SIZES, assert_killed_run_is, trainer
from vit_keras import commands, data, evaluation, exporting, models, runtimes
from vit_keras.config import UsageError
from vit_keras.exporting import tflite_file
from vit_keras.exporting.serving import serving_model
from vit_keras.support.box_metrics import best_of, overlaps, scored_corners

SIDE, TRAIN, TEST = 8, 64, 24
MASKS, BOXES, NAMES = (16, 24), (24, 32), ["cat", "dog"]
FP32 = {"precisions": ["fp32"]}
on_torch, nightly = pytest.mark.on("torch"), pytest.mark.nightly
NUMBERS = pytest.param("numbers", marks=pytest.mark.nightly_on("jax"))
run = commands.run


def table(folder):
    """Digits as pictures, with labels and numbers, a tenth of them unknown."""
    rng, digits = np.random.default_rng(0), load_digits()
    images = np.round(digits.images * (255 / 16)).astype("uint8")
    rows = {"path": [], "even": [], "big": [], "round": [], "ink": [], "tilt": []}
    for i, (image, digit) in enumerate(zip(images[: TRAIN + TEST], digits.target)):
        Image.fromarray(image).save(folder / f"{i}.png")
        rows["path"].append(f"{i}.png")
        values = int(digit % 2 == 0), int(digit >= 5), int(digit in (0, 6, 8, 9)), image.mean() / 8
        tilt = 40.0 + (np.arange(SIDE) * image.mean(axis=0)).sum() / image.mean()
        for name, value in zip(list(rows)[1:], (*values, tilt)):
            rows[name].append(None if rng.random() < 0.1 else value)
    rows["split"] = ["train"] * TRAIN + ["test"] * TEST
    pyarrow.csv.write_csv(pyarrow.table(rows), folder / "rows.csv")
    sizes = {**SIZES, "model.image_size": SIDE, "model.patch_size": 4, "model.channels": 1}
    return {**sizes, "dataset": f"table:{folder / 'rows.csv'}"}


def labels(folder):
    fields = {"data.label_columns": "even,big,round", "data.dev_percent": 25, "calibrate": "true"}
    return table(folder) | fields


def numbers(folder):
    return table(folder) | {"data.label_columns": "ink,tilt", "loss": "huber"}


def masks(folder):
    photos = write_folder(folder / "photos")
    mask = np.zeros((20, 50), "uint8")  # a picture of another size, and pixels without a class
    mask[3:15, 5:30], mask[0] = 1, 255
    write_pair(photos / "test", "wide", mask)
    fields = {"dataset": f"folder:{photos}", "model.image_size": [*MASKS], "model.patch_size": 4}
    return {**SIZES, **fields, "augment.flip": "true", "optimizer.ema_decay": 0.5}


def boxes(folder):
    """A YOLO folder of gray and white rectangles on pictures of the model's size."""
    root, rng = folder / "photos", np.random.default_rng(3)
    for split, count in (("train", 16), ("val", 6)):
        (root / "images" / split).mkdir(parents=True)
        (root / "labels" / split).mkdir(parents=True)
        for number in range(count):
            picture, lines = np.zeros((*BOXES, 3), "uint8"), []
            for left in (1, 17)[: rng.integers(1, 3)]:
                kind, top, height, width = rng.integers((0, 0, 6, 6), (2, 10, 15, 15))
                picture[top : top + height, left : left + width] = 120 * (kind + 1)
                center = np.array([left + width / 2, top + height / 2, width, height])
                shares = center / np.tile(BOXES[::-1], 2)
                lines.append(" ".join(map(str, (kind, *shares.tolist()))))
            Image.fromarray(picture).save(root / "images" / split / f"p{number}.png")
            (root / "labels" / split / f"p{number}.txt").write_text("\n".join(lines))
    text = "train: images/train\nval: images/val\nnames: [cat, dog]\n"
    (root / "data.yaml").write_text(text)
    fields = {"dataset": f"folder:{root}", "model.image_size": [*BOXES], "augment.shift": 0.1}
    return {**SIZES, **fields, "augment.flip": "true", "optimizer.ema_decay": 0.5}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return trainer(tmp_path_factory, {k.__name__: k for k in (labels, numbers, masks, boxes)})


def held_out(trained, kind):
    return data.load(trained(kind).fields["dataset"], 3).split("test")


@pytest.mark.nightly_on("tensorflow")
@pytest.mark.parametrize("kind", ["labels", NUMBERS, "masks", "boxes"])
def test_a_killed_run_goes_on_to_the_same_bits(trained, tmp_path, kind):
    straight = trained(kind)
    rows = assert_killed_run_is(straight, tmp_path)
    tasks = [vit_keras.open(folder / "model.keras").task for folder in (straight.folder, tmp_path)]
    assert tasks[0] == tasks[1] and tasks[0].kind == kind
    if kind == "masks":
        assert {"val_miou", "val_pixel_accuracy"} <= rows[0].keys()
    if kind == "boxes":
        # Pictures have the model's size, so both see the same boxes; the weights are averaged.
        assert rows[-1]["val_ap"] == pytest.approx(straight.report["ap"], abs=1e-6)


@on_torch
@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_figures_of_labels_and_numbers_equal_scikit_learns(trained, tmp_path, kind):
    folder, _, _ = trained(kind)
    out = tmp_path / "predictions.csv"
    run(["evaluate", str(folder), "--predictions", str(out), "--out", str(tmp_path)])
    report = json.loads((tmp_path / "report.json").read_text())
    rows = list(csv.DictReader(out.open()))
    model = vit_keras.open(folder / "model.keras")
    assert len(rows) == TEST == report["images"]
    for name, figures in zip(model.class_names, report[kind], strict=True):
        known = [row for row in rows if row[f"label_{name}"]]
        true = np.array([float(row[f"label_{name}"]) for row in known])
        predicted = np.array([float(row[f"predicted_{name}"]) for row in known])
        if kind == "numbers":
            assert figures["r2"] == pytest.approx(reference.r2_score(true, predicted), abs=1e-4)
            assert abs(predicted.mean() - true.mean()) < 2 * true.std()  # in units of the table
            continue
        score = reference.average_precision_score(true, predicted)
        assert figures["average_precision"] == pytest.approx(score, abs=1e-6)


@on_torch
def test_thresholds_and_temperature_come_from_the_development_split(trained, tmp_path):
    task = vit_keras.open(trained("labels").folder / "model.keras").task
    assert task.mean is task.shares is None and 0.1 <= task.temperature <= 10
    report = trained("labels").report
    assert abs(report["images"] - TRAIN * 0.25) <= 2  # of the training images
    assert list(task.thresholds) == [row["threshold"] for row in report["labels"]]
    assert report["images_chose"] == "temperature and thresholds"
    chose = " held-out images, which chose the temperature and thresholds"
    assert evaluation.headline(report).endswith(chose)
    assert "images_chose" not in trained("numbers").report

    fields = {"model.dtype": "mixed_bfloat16", "model.detector": "tokens", "model.num_boxes": 5}
    report = trained("boxes").again(tmp_path, **fields, **{"data.dev_percent": 40})
    model = vit_keras.open(tmp_path)
    assert model.output_shape == (None, 5, 2 + 1 + 4)
    assert report["images_chose"] == "thresholds"
    assert model.task.thresholds == tuple(row["threshold"] for row in report["boxes"])


@pytest.mark.nightly_on("jax", "torch")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["labels", pytest.param("numbers", marks=nightly)])
def test_exported_files_of_labels_answer_alike(trained, tmp_path, capsys, kind):
    folder = trained(kind).folder
    out, pictures = tmp_path / "files", [str(folder.parent / f"{i}.png") for i in range(TRAIN, 70)]
    precision = ["--precision", "fp32", "--out", str(out)]
    run(["export", str(folder), "--format", "litert", "onnx", *precision])
    manifest = json.loads((out / "manifest.json").read_text())
    assert all(row["largest_difference"] < 1e-4 for row in manifest["files"])
    assert manifest["task"]["kind"] == kind
    capsys.readouterr()
    answers = []
    for name in ("model.tflite", "model.onnx"):  # without the documents beside them
        shutil.copy(out / name, tmp_path)
    for source in (folder, tmp_path / "model.tflite", tmp_path / "model.onnx"):
        run(["predict", str(source), *pictures, "--format", "jsonl"])
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        answers.append([line["numbers" if kind == "numbers" else "classes"] for line in lines])
    for others in answers[1:]:
        for one, other in zip(answers[0], others, strict=True):
            if kind == "labels":
                assert [row["name"] for row in one] == [row["name"] for row in other]
                one, other = ({row["name"]: row["probability"] for row in x} for x in (one, other))
            assert other == pytest.approx(one, rel=1e-4, abs=1e-5)


def learned(kind, classes):
    """A segmenter or a detector whose weights are far from zero."""
    sizes = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24, "num_classes": 5}
    if kind == "masks":
        model = models.segmenter(models.VisionTransformer(MASKS, 4, **sizes), classes, width=4)
    else:
        base = models.VisionTransformer(BOXES, 8, **sizes)
        model = models.detector(base, num_classes=classes, head="patches")
    return randomize(model, np.random.default_rng(5))


@pytest.mark.nightly_on("jax", "torch")
@pytest.mark.parametrize("output", ["softmax", "mask"])
def test_exported_files_of_masks_answer_as_keras_does(tmp_path, rng, output):
    """Shares of the classes, or the mask itself."""
    model, images = learned("masks", 3), rng.integers(0, 256, (5, *MASKS, 3), dtype="uint8")
    options = {"formats": ["litert", "onnx"], "images": images, "output": output, **FP32}
    rows = exporting.export(model, tmp_path, **options)
    logits = np.asarray(serving_model(model, "logits").predict(images, verbose=0))
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    best = logits.argmax(axis=-1)
    assert logits.std() > 0.1 and len({*best.ravel()}) == 3
    for row in rows:
        outputs = runtimes.open(tmp_path / row["file"])(images)
        predictor, _ = evaluation.open_predictor(tmp_path / row["file"])
        mask = evaluation.predict_mask(predictor, images[0].repeat(2, axis=0))
        assert mask.shape == (32, 24)
        if output == "softmax":
            assert outputs.shape == (5, *MASKS, 3) and row["largest_difference"] < 1e-4
            np.testing.assert_allclose(outputs, shares, atol=1e-4)
            assert predictor.gives_probabilities
        else:
            assert outputs.shape == (5, *MASKS) and row["agreement"] >= 0.999
            assert (outputs == best).mean() > 0.999
    phone = tflite_file.read(tmp_path / "model.tflite")
    metadata = bytes(phone.buffers[phone.metadata[-1].buffer].data)
    assert b"labels.txt" in metadata and b"attention" not in metadata


@on_torch
def test_exported_files_of_boxes_answer_as_keras_does(trained, tmp_path):
    folder, model, split = tmp_path / "export", learned("boxes", 2), held_out(trained, "boxes")
    model.class_names = NAMES
    images, targets = map(np.stack, zip(*(split.example(index) for index in range(len(split)))))
    formats = ["litert", "onnx", "pt2", "openvino"]
    options = {"images": images, "labels": targets, "formats": formats, **FP32}
    rows = exporting.export(model, folder, **options)
    joined = evaluation.make_predictor(model)
    expected = scored_corners(joined.run(joined.preprocessing.normalize(images)))
    expected[..., -4:] = expected[..., -4:].clip(0, 1)
    assert {*expected[..., :2].argmax(axis=-1).ravel()} == {0, 1}
    for row in rows:
        opened = runtimes.open(folder / row["file"])
        outputs = opened(images)
        assert opened.gives_boxes and opened.num_outputs == 2
        np.testing.assert_allclose(outputs, expected, atol=1e-4)
        assert overlaps(outputs[..., 2:], expected[..., 2:]).min() > 0.999
        assert row["least_iou"] > 0.999 and 0 <= row["accuracy"] <= 1
        predictor, _ = evaluation.open_predictor(folder / row["file"])
        (found,) = evaluation.predict_boxes(predictor, images[:1])
        (other,) = evaluation.predict_boxes(joined, images[:1])
        np.testing.assert_array_equal(found.classes, other.classes)
        np.testing.assert_allclose(found.corners, other.corners, atol=0.01)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["outputs"]["boxes"].startswith("(N, T, 4): left, top, right")
    description = (folder / "openvino" / "model.xml").read_text()
    assert runtimes.NOTE_KEY not in description  # made from the ONNX file before it has a note
    for name in ("model.tflite", "model.pt2"):  # without the documents beside them
        alone = shutil.copy(folder / name, tmp_path)
        assert evaluation.open_predictor(alone)[0].task.kind == "boxes"
    predictor, _ = evaluation.open_predictor(tmp_path / "model.tflite")
    assert predictor.class_names == tuple(NAMES)


@on_torch
def test_commands_evaluate_and_predict_boxes(trained, tmp_path, capsys):
    folder, report, fields = trained("boxes")
    run(["evaluate", str(folder), "--out", str(tmp_path / "report")])
    assert f"AP {100 * report['ap']:.2f}%" in capsys.readouterr().out
    assert Image.open(tmp_path / "report" / "predictions.png").width > 0
    assert json.loads((tmp_path / "report" / "report.json").read_text()) == report
    pictures = fields["dataset"].removeprefix("folder:") + "/images/val"
    arguments = ["predict", str(folder), pictures, "--threshold", "0.1", "--out"]
    run([*arguments, str(tmp_path / "boxes.csv")])
    run([*arguments, str(tmp_path / "boxes.json")])
    rows = [*csv.DictReader((tmp_path / "boxes.csv").open())]
    coco = json.loads((tmp_path / "boxes.json").read_text())
    assert len(coco["images"]) == 6 and len(coco["annotations"]) == len(rows) == 6 * 12
    predictor, _ = evaluation.open_predictor(folder)
    (found,) = evaluation.predict_boxes(predictor, [data.read_image(rows[0]["path"], 3)])
    assert float(rows[0]["score"]) == pytest.approx(float(found.scores.max()), rel=1e-5)
    run([*arguments, str(tmp_path / "drawn"), "--tiles"])
    assert len([*(tmp_path / "drawn").iterdir()]) == 6
    with pytest.raises(UsageError, match="--top does not apply to a model of boxes"):
        run([*arguments, "c.csv", "--top", "1"])


@on_torch
def test_a_yolos_of_transformers_is_predicted_with_and_exported(tmp_path):
    """Softmax without its last class, its best class, and corners, as transformers' processor."""
    source = GOLDEN / "boxes" / "hf_yolos_mid_positions"
    predictor, _ = evaluation.open_predictor(source)
    with np.load(source / "io.npz") as file:
        images, logits, places = (file[key] for key in ("images", "logits", "boxes"))
    shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    center, half = places[..., :2], places[..., 2:] / 2
    size = (300, 200, 300, 200)
    expected = (np.concatenate([center - half, center + half], axis=-1) * size).clip(0, size)
    answers = predictor.as_probabilities(np.asarray(predictor.run(images)))
    for row, answer in enumerate(answers):
        found = best_of(answer, (300, 200))
        np.testing.assert_array_equal(found.classes, shares[row, :, :-1].argmax(axis=-1))
        np.testing.assert_allclose(found.scores, shares[row, :, :-1].max(axis=-1), rtol=1e-4)
        np.testing.assert_allclose(found.corners, expected[row], atol=0.02)
    (row,) = exporting.export(vit_keras.open(source), tmp_path / "files", formats=["onnx"], **FP32)
    assert row["least_iou"] > 0.999 and row["agreement"] == 1


@on_torch
def test_a_segmenter_that_keras_saved_is_one_to_every_command(trained, tmp_path, capsys):
    model = learned("masks", 3)
    model.save(tmp_path / "model.keras")
    dataset = trained("masks").fields["dataset"]
    source, pictures = str(tmp_path / "model.keras"), tmp_path / "pictures"
    shutil.copytree(f"{dataset.removeprefix('folder:')}/test/images", pictures)
    (pictures / "torn.png").write_bytes(b"no picture")
    files = str(tmp_path / "files")
    run(["export", source, "--format", "onnx", "--precision", "fp32", "--out", files])
    tiles = evaluation.TileOptions(tiles=True, overlap=0.5)
    predictor = evaluation.make_predictor(model)
    wide = data.read_image(pictures / "wide.png", 3)
    expected, reports = evaluation.predict_mask(predictor, wide, tiles), []
    assert expected.shape == (20, 50) and len({*expected.ravel()}) > 1
    for name in (source, f"{files}/model.onnx"):
        out = tmp_path / "out" / name[-4:]
        options = ["--tiles", "--overlap", "0.5", "--skip_unreadable", "--out", str(out)]
        run(["predict", name, str(pictures), *options])
        assert "1 of 6 pictures could not be read" in capsys.readouterr().err
        written = np.asarray(Image.open(out / "masks" / "wide.png"))
        assert (written == expected).mean() > 0.999
        assert len([*(out / "overlays").iterdir()]) == 5
        run(["evaluate", name, "--dataset", dataset, "--out", str(out), "--ignore_class_names"])
        reports.append(json.loads((out / "report.json").read_text())["miou"])
    pairs = [held_out(trained, "masks").example(index) for index in range(5)]
    true = np.concatenate([mask.ravel() for _, mask in pairs])
    predicted = [evaluation.predict_mask(predictor, image).ravel() for image, _ in pairs]
    known = true != 255
    predicted = np.concatenate(predicted)[known]
    score = reference.jaccard_score(true[known], predicted, average="macro")
    assert reports == pytest.approx([score, score], abs=1e-3)
