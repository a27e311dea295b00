"""A run on boxes from a folder to a report, a prediction and exported files."""

import csv
import json

import numpy as np
import pytest
from PIL import Image

import vit_keras
from tests.helpers import GOLDEN, randomize
from tests.training.small import assert_killed_run_is, train_places
from vit_keras import commands, data, evaluation, exporting, models, runtimes
from vit_keras.config import UsageError
from vit_keras.support.box_metrics import best_of, overlaps, scored_corners

SIZE = (24, 32)
FIELDS = {"model.image_size": "[24,32]", "model.patch_size": 8}
NAMES = ["cat", "dog"]


def train(folder, photos, **fields):
    return train_places(folder, photos, FIELDS | fields)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A YOLO folder of gray and white rectangles on pictures of the model's size."""
    root, rng = tmp_path_factory.mktemp("data") / "photos", np.random.default_rng(3)
    for split, count in (("train", 16), ("val", 6)):
        (root / "images" / split).mkdir(parents=True)
        (root / "labels" / split).mkdir(parents=True)
        for number in range(count):
            picture, lines = np.zeros((*SIZE, 3), "uint8"), []
            for left in (1, 17)[: rng.integers(1, 3)]:
                kind, top, height, width = rng.integers((0, 0, 6, 6), (2, 10, 15, 15))
                picture[top : top + height, left : left + width] = 120 * (kind + 1)
                shares = (left + width / 2, top + height / 2, width, height) / np.tile(
                    SIZE[::-1], 2
                )
                lines.append(" ".join(map(str, (kind, *shares.tolist()))))
            Image.fromarray(picture).save(root / "images" / split / f"p{number}.png")
            (root / "labels" / split / f"p{number}.txt").write_text("\n".join(lines))
    text = "train: images/train\nval: images/val\nnames: [cat, dog]\n"
    (root / "data.yaml").write_text(text)
    return root


@pytest.fixture(scope="module")
def trained(tmp_path_factory, photos):
    """A run that is never stopped."""
    folder = tmp_path_factory.mktemp("runs") / "straight"
    return folder, train(folder, photos)


@pytest.mark.nightly_on("tensorflow")
def test_a_killed_run_ends_with_the_same_bits(trained, photos, tmp_path):
    rows = assert_killed_run_is(trained, lambda folder: train(folder, photos), tmp_path / "run")
    # Pictures have the model's size, so both see the same boxes; the weights are averaged.
    assert rows[-1]["val_ap"] == pytest.approx(trained[1]["ap"], abs=1e-6)


@pytest.mark.on("torch")
def test_thresholds_of_the_development_split_go_into_the_model(photos, tmp_path):
    fields = {"data.dev_percent": 40, "model.dtype": "mixed_bfloat16", "model.detector": "tokens"}
    report = train(tmp_path / "run", photos, **fields, **{"model.num_boxes": 5})
    model = vit_keras.open(tmp_path / "run")
    assert model.output_shape == (None, 5, 2 + 1 + 4)
    assert report["images_chose"] == "thresholds"
    assert model.task.thresholds == tuple(row["threshold"] for row in report["boxes"])


def learned():
    """A detector whose weights are far from zero."""
    base = models.VisionTransformer(SIZE, 8, 16, 2, 2, 24, num_classes=5)
    model = models.detector(base, num_classes=2, head="patches")
    model.class_names = NAMES
    return randomize(model, np.random.default_rng(5))


@pytest.fixture(scope="module")
def exported(tmp_path_factory, photos):
    folder, model = tmp_path_factory.mktemp("files") / "export", learned()
    split = data.load(f"folder:{photos}", 3).split("test")
    images, labels = map(np.stack, zip(*(split.example(index) for index in range(len(split)))))
    options = {"images": images, "labels": labels, "threads": (), "precisions": ["fp32"]}
    formats = ["litert", "onnx", "savedmodel", "pt2", "openvino"]
    return folder, exporting.export(model, folder, formats=formats, **options), images, model


@pytest.mark.nightly_on("jax", "tensorflow")
def test_exported_files_answer_as_keras_does(exported, photos, tmp_path):
    folder, rows, images, model = exported
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
    alone = tmp_path / "alone.tflite"
    alone.write_bytes((folder / "model.tflite").read_bytes())
    predictor, _ = evaluation.open_predictor(alone)
    assert predictor.task.kind == "boxes" and predictor.class_names == tuple(NAMES)
    alone = tmp_path / "alone.pt2"
    alone.write_bytes((folder / "model.pt2").read_bytes())
    assert evaluation.open_predictor(alone)[0].task.kind == "boxes"


@pytest.mark.on("torch")
def test_commands_evaluate_and_predict(trained, photos, tmp_path, capsys):
    folder, report = trained
    commands.run(["evaluate", str(folder), "--out", str(tmp_path / "report")])
    shown = capsys.readouterr().out
    assert f"AP {100 * report['ap']:.2f}%" in shown
    assert Image.open(tmp_path / "report" / "predictions.png").width > 0
    again = json.loads((tmp_path / "report" / "report.json").read_text())
    assert again == report
    pictures = str(photos / "images" / "val")
    arguments = ["predict", str(folder), pictures, "--threshold", "0.1", "--out"]
    commands.run([*arguments, str(tmp_path / "boxes.csv")])
    commands.run([*arguments, str(tmp_path / "boxes.json")])
    rows = [*csv.DictReader((tmp_path / "boxes.csv").open())]
    coco = json.loads((tmp_path / "boxes.json").read_text())
    assert len(coco["images"]) == 6 and len(coco["annotations"]) == len(rows) == 6 * 12
    predictor, _ = evaluation.open_predictor(folder)
    (found,) = evaluation.predict_boxes(predictor, [data.read_image(rows[0]["path"], 3)])
    assert float(rows[0]["score"]) == pytest.approx(float(found.scores.max()), rel=1e-5)
    commands.run([*arguments, str(tmp_path / "drawn"), "--tiles"])
    assert len([*(tmp_path / "drawn").iterdir()]) == 6
    for option in (["--top", "1"], ["--coverage", "0.9"], ["--abstain", "0.1"]):
        with pytest.raises(UsageError, match=f"A model of boxes takes no {option[0]}"):
            commands.run([*arguments, "c.csv", *option])
    with pytest.raises(ValueError, match=r"`predictions` .* Received: a model of boxes"):
        commands.run(["evaluate", str(folder), "--predictions", str(tmp_path / "c.csv")])
    capsys.readouterr()
    commands.run(["info", str(folder), "--json"])
    assert json.loads(capsys.readouterr().out)["task"]["kind"] == "boxes"


@pytest.mark.on("torch")
@pytest.mark.parametrize(
    "name", ["hf_yolos_mid_positions", pytest.param("hf_yolos", marks=pytest.mark.nightly)]
)
def test_a_yolos_of_transformers_is_predicted_with_and_exported(name, tmp_path):
    """Softmax without its last class, its best class, and corners, as transformers' processor."""
    source = GOLDEN / "boxes" / name
    predictor, _ = evaluation.open_predictor(source)
    with np.load(source / "io.npz") as file:
        images, logits, boxes = (file[key] for key in ("images", "logits", "boxes"))
    shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    expected = np.concatenate([center - half, center + half], axis=-1) * (300, 200, 300, 200)
    answers = predictor.as_probabilities(np.asarray(predictor.run(images)))
    for row, answer in enumerate(answers):
        found = best_of(answer, (300, 200))
        np.testing.assert_array_equal(found.classes, shares[row, :, :-1].argmax(axis=-1))
        np.testing.assert_allclose(found.scores, shares[row, :, :-1].max(axis=-1), rtol=1e-4)
        inside = expected[row].clip(0, (300, 200, 300, 200))
        np.testing.assert_allclose(found.corners, inside, atol=0.02)
    options = {"formats": ["onnx"], "precisions": ["fp32"], "threads": ()}
    (row,) = exporting.export(vit_keras.open(source), tmp_path / "files", **options)
    assert row["least_iou"] > 0.999 and row["agreement"] == 1
