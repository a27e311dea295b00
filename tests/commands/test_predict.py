"""`predict`, `info` and `bench` on a small run, beside what the library gives."""

import csv
import io
import json

import keras
import numpy as np
import pytest
from PIL import Image

from tests.helpers import randomise
from vit_keras import data, evaluation
from vit_keras.commands import run
from vit_keras.models import VisionTransformer
from vit_keras.weights import open_model, save_model


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    model = VisionTransformer(16, 8, 24, 2, 3, 40, 4, name="small")
    randomise(model, np.random.default_rng(0))
    model.class_names = ["cat", "dog", "owl", "a very long name of a class"]
    file = tmp_path_factory.mktemp("predict") / "small.keras"
    save_model(model, file)
    return str(file)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(1)
    for i in range(5):
        pixels = rng.integers(0, 256, (20 + i, 30, 3), dtype="uint8")
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return folder


def expected(model_file, paths):
    """Class probabilities, computed by the model itself."""
    model = open_model(model_file)
    images = [
        data.normalize(
            data.resize(data.read_image(path, 3), (16, 16), model.preprocessing),
            model.preprocessing,
        )
        for path in paths
    ]
    logits = keras.ops.convert_to_numpy(model(np.stack(images)))
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def test_every_format_says_what_the_model_says(model_file, pictures, tmp_path, capsys, monkeypatch):
    paths = sorted(pictures.iterdir())
    shares, names = expected(model_file, paths), open_model(model_file).class_names
    best = [names[k] for k in shares.argmax(axis=1)]

    run(["predict", model_file, str(pictures), "--batch_eval", "2"])
    table = capsys.readouterr().out.splitlines()
    assert [line.startswith(f"{p}: {name} ") for line, p, name in zip(table, paths, best)] == [
        True
    ] * 5

    out = tmp_path / "labels.csv"
    run(["predict", model_file, f"{pictures}/*.png", "--out", str(out), "--top", "4"])
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [row["path"] for row in rows] == list(map(str, paths))
    assert [row["class_1"] for row in rows] == best
    for row, share in zip(rows, shares):
        written = {row[f"class_{k}"]: float(row[f"probability_{k}"]) for k in range(1, 5)}
        np.testing.assert_allclose([written[name] for name in names], share, atol=1e-5)

    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(str, paths[3:]))))
    run(["predict", model_file, "-", "--format", "jsonl", "--top", "1"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["classes"][0]["name"] for line in lines] == best[3:]
    assert lines[0]["classes"][0]["probability"] == pytest.approx(shares[3].max(), abs=1e-5)


def test_an_unreadable_picture_stops_or_is_reported(model_file, pictures, tmp_path, capsys):
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"not a picture")
    command = ["predict", model_file, str(pictures / "0.png"), str(bad)]
    with pytest.raises(ValueError, match=r"bad\.png"):
        run(command)
    out = tmp_path / "a.csv"
    with pytest.raises(ValueError, match=r"bad\.png"):
        run([*command, "--out", str(out)])
    assert not out.exists()  # nothing half-written
    capsys.readouterr()
    run([*command, "--skip_unreadable"])
    good, line = capsys.readouterr().out.splitlines()
    assert "%" in good and "bad.png" in line and "%" not in line


@pytest.mark.once
def test_pictures_are_drawn_with_their_labels(model_file, pictures, tmp_path):
    run(["predict", model_file, str(pictures / "0.png"), "--draw", str(tmp_path / "out")])
    (file,) = (tmp_path / "out").iterdir()
    page = np.asarray(Image.open(file).convert("RGB")).astype(int)
    original = np.asarray(Image.open(pictures / "0.png")).astype(int)
    height = round(512 / 30 * 20)
    assert page.shape[1] >= 512 and page.shape[0] > height
    centers = page[8:height:17, (page.shape[1] - 512) // 2 + 8 :: 17][:20, :30]
    assert np.abs(centers[:19, :29] - original[:19, :29]).mean() < 20  # the picture, enlarged
    below = page[height:]
    assert (below == 255).mean() > 0.5 and (below < 60).any()  # text on white


@pytest.mark.once
def test_info_describes_checkpoints_and_variants(model_file, capsys):
    run(["info", model_file, "--json"])
    description = json.loads(capsys.readouterr().out)
    model = open_model(model_file)
    assert description["kind"] == "checkpoint" and description["class_names"] == model.class_names
    assert description["parameters"] == model.count_params()
    assert description["architecture"]["hidden_size"] == 24
    assert description["image_size"] == [16, 16] and len(description["files"][0]["sha256"]) == 64

    run(["info", "L/16", "--epochs", "7", "--device_tflops", "61.5", "--json"])
    description = json.loads(capsys.readouterr().out)
    assert description["parameters"] == 304_326_632
    assert description["training"]["exaflops"] == pytest.approx(783, rel=0.03)  # Table 6
    run(["info", "B/16", "--layers"])
    text = capsys.readouterr().out
    assert "parameters: 86,567,656" in text and "encoderblock_11" in text


@pytest.mark.once
def test_bench_measures_each_model_and_batch(model_file, capsys):
    run(["bench", model_file, "--batch", "1", "3", "--rounds", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["1", "3"]
    for line in lines[1:]:
        batch, milliseconds, speed = map(float, line.split()[1:])
        assert speed == pytest.approx(1e3 * batch / milliseconds, rel=0.05)


@pytest.mark.once
def test_predictions_equal_the_evaluation(model_file, pictures):
    predictor, _ = evaluation.open_predictor(model_file)
    paths = sorted(pictures.iterdir())
    rows = list(evaluation.predict_files(predictor, paths, top=4))
    shares = expected(model_file, paths)
    for row, share in zip(rows, shares):
        np.testing.assert_allclose(
            [value for _, value in row.classes], np.sort(share)[::-1], atol=1e-5
        )
