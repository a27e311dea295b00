"""A run on masks from a folder to a report, a prediction and exported files."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import confusion_matrix, jaccard_score

import vit_keras
from tests.data.mask_pictures import write_folder, write_pair
from tests.helpers import randomize
from tests.training.small import assert_killed_run_is, train_places
from vit_keras import commands, data, evaluation, exporting, models, runtimes
from vit_keras.exporting.serving import serving_model

SIZE = (16, 24)
FIELDS = {"model.image_size": "[16,24]", "model.patch_size": 4}


def train(folder, photos, **fields):
    return train_places(folder, photos, FIELDS | fields)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("data") / "photos")
    mask = np.zeros((20, 50), "uint8")  # a picture of another size, and pixels without a class
    mask[3:15, 5:30], mask[0] = 1, 255
    write_pair(folder / "test", "wide", mask)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory, photos):
    """A run that is never stopped."""
    folder = tmp_path_factory.mktemp("runs") / "straight"
    return folder, train(folder, photos)


@pytest.mark.nightly_on("tensorflow")
def test_a_killed_run_ends_with_the_same_bits(trained, photos, tmp_path):
    rows = assert_killed_run_is(trained, lambda folder: train(folder, photos), tmp_path / "run")
    assert {"val_miou", "val_pixel_accuracy"} <= rows[0].keys()


def test_the_report_is_scikit_learns_at_the_size_of_each_picture(trained, photos):
    folder, report = trained
    predictor, _ = evaluation.open_predictor(folder)
    assert predictor.task.kind == "masks" and predictor.class_names == ("ground", "house", "tree")
    split = data.load(f"folder:{photos}", 3).split("test")
    true, predicted = [], []
    for picture, mask in (split.example(index) for index in range(len(split))):
        true.append(mask.ravel())
        predicted.append(evaluation.predict_mask(predictor, picture).ravel())
    true, predicted = map(np.concatenate, (true, predicted))
    known = true != 255
    assert len(true) == 4 * 40 * 32 + 20 * 50
    matrix = confusion_matrix(true[known], predicted[known], labels=[0, 1, 2])
    assert report["confusion_matrix"] == matrix.tolist()
    expected = jaccard_score(true[known], predicted[known], average="macro")
    assert report["miou"] == pytest.approx(expected)


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files") / "export"
    model = vit_keras.open(trained[0] / "model.keras")
    rng = np.random.default_rng(0)
    for weight in model.weights:  # a head of small weights would hide differences
        weight.assign(weight + 0.3 * rng.normal(size=weight.shape).astype("float32"))
    images = rng.integers(0, 256, (5, *SIZE, 3), dtype="uint8")
    rows = exporting.export(
        model, folder, images=images, formats=["litert", "onnx"], precisions=["fp32"], threads=()
    )
    logits = np.asarray(serving_model(model, "logits").predict(images, verbose=0))
    return folder, rows, images, logits, model


@pytest.mark.nightly_on("jax", "torch")
def test_exported_files_answer_as_keras_does(exported, photos):
    folder, rows, images, logits, _ = exported
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    assert logits.std() > 0.1 and len({*logits.argmax(axis=-1).ravel()}) == 3
    for row in rows:
        outputs = runtimes.open(folder / row["file"])(images)
        assert outputs.shape == (5, *SIZE, 3) and row["largest_difference"] < 1e-4
        np.testing.assert_allclose(outputs, shares, atol=1e-4)
        predictor, _ = evaluation.open_predictor(folder / row["file"])
        metrics = evaluation.judge_masks(
            predictor, data.load(f"folder:{photos}", 3).split("test"), ["a", "b", "c"]
        )
        assert metrics["images"] == 5 and predictor.gives_probabilities


@pytest.mark.nightly
@pytest.mark.on("tensorflow")
def test_files_may_return_the_mask_itself(exported, tmp_path):
    *_, images, logits, model = exported
    formats = ["litert", "onnx", "savedmodel"]
    options = {"precisions": ["fp32"], "threads": (), "output": "mask"}
    rows = exporting.export(model, tmp_path / "masks", images=images, formats=formats, **options)
    picture = images[0].repeat(2, axis=0)
    masks = []
    for row in rows:
        outputs = runtimes.open(tmp_path / "masks" / row["file"])(images)
        assert outputs.shape == (5, *SIZE) and row["agreement"] >= 0.999
        assert (outputs == logits.argmax(axis=-1)).mean() > 0.999
        predictor, _ = evaluation.open_predictor(tmp_path / "masks" / row["file"])
        masks.append(evaluation.predict_mask(predictor, picture))
    assert masks[0].shape == (32, 24) and (masks[0] == masks[1]).mean() > 0.99
    assert "`labels.txt`" in (tmp_path / "masks" / "model_card.md").read_text()
    with pytest.raises(ValueError, match=r"must be softmax, mask, logits or features.*'sigmoid'"):
        exporting.export(model, tmp_path / "other", images=images, output="sigmoid")
    with pytest.raises(ValueError, match=r"needs the tokens of all patches.*token_merging=2"):
        exporting.export(model, tmp_path / "other", images=images, token_merging=2)


@pytest.mark.on("torch")
def test_commands_check_evaluate_and_predict(trained, photos, tmp_path, capsys):
    folder, report = trained
    commands.run(["check", str(photos)])
    shown = capsys.readouterr().out
    assert "It can be trained on" in shown and "house" in shown
    commands.run(["evaluate", str(folder), "--out", str(tmp_path / "report")])
    shown = capsys.readouterr().out
    assert f"mean IoU {100 * report['miou']:.2f}%" in shown
    sheet = Image.open(tmp_path / "report" / "predictions.png")
    assert sheet.width > sheet.height
    pictures = tmp_path / "pictures"
    shutil.copytree(photos / "test" / "images", pictures)
    (pictures / "torn.png").write_bytes(b"no picture")
    out = str(tmp_path / "out")
    arguments = [str(folder), str(pictures), "--tiles", "--overlap", "0.5", "--out", out]
    commands.run(["predict", *arguments, "--skip_unreadable"])
    assert "1 of 6 pictures could not be read" in capsys.readouterr().err
    predictor, _ = evaluation.open_predictor(folder)
    options = evaluation.TileOptions(tiles=True, overlap=0.5)
    expected = evaluation.predict_mask(
        predictor, data.read_image(pictures / "wide.png", 3), options
    )
    written = np.asarray(Image.open(tmp_path / "out" / "masks" / "wide.png"))
    np.testing.assert_array_equal(written, expected)
    assert len([*(tmp_path / "out" / "overlays").iterdir()]) == 5


@pytest.mark.on("torch")
def test_a_segmenter_that_keras_saved_is_one_to_every_command(photos, rng, tmp_path, capsys):
    sizes = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "mlp_dim": 8, "num_classes": 5}
    model = models.segmenter(randomize(models.VisionTransformer(SIZE, 8, **sizes), rng), 3, width=4)
    randomize(model, rng).save(tmp_path / "model.keras")
    source, picture = str(tmp_path / "model.keras"), photos / "test" / "images" / "wide.png"
    files, data_set = str(tmp_path / "files"), ["--dataset", f"folder:{photos}"]
    commands.run(["export", source, "--format", "onnx", "--precision", "fp32", "--out", files])
    mask_of = lambda image: evaluation.predict_mask(evaluation.make_predictor(model), image)
    expected, reports = mask_of(data.read_image(picture, 3)), []
    assert expected.shape == (20, 50) and len({*expected.ravel()}) > 1
    for name in (source, f"{files}/model.onnx"):
        capsys.readouterr()
        commands.run(["info", name, "--json"])
        assert json.loads(capsys.readouterr().out)["task"]["kind"] == "masks"
        out = tmp_path / "out" / name[-4:]
        commands.run(["predict", name, str(picture), "--out", str(out)])
        written = np.asarray(Image.open(out / "masks" / "wide.png"))
        assert (written == expected).mean() > 0.999
        commands.run(["evaluate", name, *data_set, "--out", str(out), "--ignore_class_names"])
        reports.append(json.loads((out / "report.json").read_text()))
    split = data.load(f"folder:{photos}", 3).split("test")
    pairs = [(mask, mask_of(image)) for image, mask in map(split.example, range(5))]
    true, predicted = (np.concatenate([x.ravel() for x in arrays]) for arrays in zip(*pairs))
    known = true != 255
    score = jaccard_score(true[known], predicted[known], average="macro")
    assert [report["miou"] for report in reports] == pytest.approx([score, score], abs=1e-3)
