"""`predict` in each format, beside softmax and top-k in NumPy."""

import contextlib
import csv
import io
import json
import re

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image

from tests import reference
from tests.commands.read_predictions import (
    Page,
    expected,
    pixels_of,
    read_columns,
    read_lines,
    read_table,
)
from tests.helpers import randomize, weights_by_path
from vit_keras import data
from vit_keras.commands import run
from vit_keras.config import UsageError
from vit_keras.models import Preprocessing, VisionTransformer
from vit_keras.weights import save_model

pytestmark = pytest.mark.on("torch")

NAMES = ["cat", "dog, small", '<i>"owl"</i> & co', "a very long name of a class"]
TOP, THRESHOLD = 3, 0.3


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    model = VisionTransformer(16, 8, 24, 2, 3, 40, 4, name="small")
    randomize(model, np.random.default_rng(0))
    model.class_names = NAMES
    file = tmp_path_factory.mktemp("predict") / "small.keras"
    save_model(model, file)
    return str(file)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of pictures of several sizes; one has a name that HTML and CSV must escape."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(1)
    for i, name in enumerate(["0.png", "1 <b>&\", '.png", "2.png", "3.png", "4.png"]):
        pixels = rng.integers(0, 256, (20 + i, 30, 3), dtype="uint8")
        Image.fromarray(pixels).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def outputs(model_file, pictures, tmp_path_factory):
    """The same pictures, one of them unreadable, in all formats: a folder and the table."""
    folder = tmp_path_factory.mktemp("outputs")
    bad = folder / "bad.png"
    bad.write_bytes(b"not a picture")
    command = ["predict", model_file, str(pictures), str(bad), str(pictures / "0.png")]
    command += ["--skip_unreadable", "--batch", "2"]
    command += ["--top", str(TOP), "--threshold", str(THRESHOLD)]
    for suffix in ("csv", "jsonl", "parquet", "html"):
        run([*command, "--out", str(folder / "new" / f"a.{suffix}")])
    run([*command, "--format", "table", "--out", str(folder / "new" / "a.txt")])
    return folder / "new"


def test_every_format_says_what_the_model_says(outputs, model_file, pictures):
    paths = sorted(pictures.iterdir())
    rows = []
    for path, shares in zip(paths, expected(model_file, paths)):
        order = np.argsort(-shares)[:TOP]
        rows.append((str(path), [(NAMES[k], shares[k]) for k in order if shares[k] >= THRESHOLD]))
    rows.append((str(outputs.parent / "bad.png"), []))
    assert {0, 1} < {len(classes) for _, classes in rows}  # the threshold leaves some out
    with open(outputs / "a.csv", newline="") as file:
        written = {"csv": read_columns(list(csv.DictReader(file)), TOP)}
    table = pyarrow.parquet.read_table(outputs / "a.parquet")
    written["parquet"] = read_columns(table.to_pylist(), TOP)
    written["jsonl"] = read_lines((outputs / "a.jsonl").read_text())
    figures = Page((outputs / "a.html").read_text()).figures
    written["html"] = [(f["path"], list(map(tuple, f["classes"]))) for f in figures]
    assert written["csv"] == written["jsonl"] == written["parquet"] == written["html"]
    written["table"] = read_table((outputs / "a.txt").read_text())
    for name, tolerance in (("csv", 1e-5), ("table", 6e-4)):
        assert [path for path, _ in written[name]] == [path for path, _ in rows]
        for (_, actual), (_, wanted) in zip(written[name], rows):
            assert [c for c, _ in actual] == [c for c, _ in wanted]
            shares = [p for _, p in wanted]
            np.testing.assert_allclose([p for _, p in actual], shares, atol=tolerance)


def test_a_picture_without_classes_says_why(outputs, model_file, pictures, capsys):
    lines = [json.loads(line) for line in (outputs / "a.jsonl").read_text().splitlines()]
    with open(outputs / "a.csv", newline="") as file:
        errors = [row["error"] or None for row in csv.DictReader(file)]
    figures = Page((outputs / "a.html").read_text()).figures
    assert [line["error"] for line in lines] == errors
    assert [bool(error) for error in errors] == [False] * 5 + [True]
    assert "bad.png' cannot be read as an image" in errors[-1]
    assert figures[-1]["p"] == errors[-1] and figures[-1]["class"] == "error"
    capsys.readouterr()
    command = ["predict", model_file, str(pictures / "0.png"), "--threshold", "0.999"]
    run(command)
    assert capsys.readouterr().out == f"{pictures / '0.png'}: no class at 99.9% or more\n"
    run([*command, "--format", "html"])
    (figure,) = Page(capsys.readouterr().out).figures
    assert figure["class"] == "none" and figure["p"] == "no class at 99.9 % or more"
    with contextlib.redirect_stdout(text := io.StringIO()):  # text alone, as in a notebook
        run([*command, "--format", "csv"])
    assert text.getvalue().splitlines()[1] == f"{pictures / '0.png'},,,,,,,"


def test_a_page_holds_its_pictures(outputs, pictures):
    text = (outputs / "a.html").read_text()
    page = Page(text)
    assert page.scripts == 1 and not re.search(r"(src|href)=.(?!data:)", text)
    paths = [*sorted(pictures.iterdir()), None]
    for figure, path in zip(page.figures, paths, strict=True):
        if path is None:
            assert not figure["images"]
            continue
        original = np.asarray(Image.open(path), "float64")
        (image,) = figure["images"]
        assert figure["b"] == path.name
        assert pixels_of(image).mean() == pytest.approx(original.mean(), abs=2)
        assert pixels_of(image).shape == original.shape
        assert figure.get("data-class") == (figure["classes"] or [[None]])[0][0]


def test_attention_is_a_layer_over_the_part_that_the_model_sees(tmp_path):
    """The layer's opacity is the rollout of Eq. 1-4, and its place that of the central crop."""
    rng = np.random.default_rng(3)
    model = randomize(VisionTransformer(16, 4, 24, 2, 3, 40, 4), rng, scale=0.5)
    model.preprocessing = Preprocessing(crop_fraction=0.8)
    save_model(model, tmp_path / "a.keras")
    pixels = rng.integers(0, 256, (40, 60, 3), dtype="uint8")
    Image.fromarray(pixels).save(tmp_path / "a.png")
    command = ["predict", str(tmp_path / "a.keras"), str(tmp_path / "a.png")]
    run([*command, "--out", str(tmp_path / "a.html"), "--attention"])
    (figure,) = Page((tmp_path / "a.html").read_text()).figures
    picture, layer = figure["images"]
    assert pixels_of(picture).shape == (40, 60, 3)
    # 40x60 becomes 20x30, of which the middle 16x16 are seen, from (2, 7) on.
    assert layer["style"] == "top:10%;left:23.33%;height:80%;width:53.33%"
    image = data.resize(pixels, (16, 16), model.preprocessing)
    image = data.normalize(image, model.preprocessing)[None]
    attention = reference.forward(image, weights_by_path(model), num_layers=2)["attention"][0]
    flow = np.eye(17)
    for weights in attention.mean(axis=1):  # (heads, N, N) of each layer
        step = weights + np.eye(17)
        flow = step / step.sum(axis=-1, keepdims=True) @ flow
    share = flow[0, 1:].reshape(4, 4)
    opacity = 255 * 0.8 * (1 - share / share.max())
    np.testing.assert_allclose(pixels_of(layer)[..., 1], opacity, atol=0.6)
    assert not pixels_of(layer)[..., 0].any()  # black


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "html"])
def test_a_failed_run_leaves_the_old_file(model_file, pictures, tmp_path, suffix):
    bad, out = tmp_path / "bad.png", tmp_path / "out" / f"a.{suffix}"
    bad.write_bytes(b"not a picture")
    out.parent.mkdir()
    out.write_text("old")
    command = ["predict", model_file, str(pictures / "0.png"), str(bad), "--batch", "1"]
    with pytest.raises(ValueError, match=r"bad\.png"):
        run([*command, "--out", str(out)])
    assert [file.read_text() for file in out.parent.iterdir()] == ["old"]


def test_paths_come_from_standard_input_each_once(model_file, pictures, capsys, monkeypatch):
    paths = sorted(pictures.iterdir())
    lines = [*paths[3:], paths[0], paths[3]]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(str, lines))))
    command = ["predict", model_file, "-", str(pictures / "[24].png"), "--top", "4"]
    run([*command, "--format", "jsonl"])
    rows = read_lines(capsys.readouterr().out)
    order = [paths[k] for k in (3, 4, 0, 2)]
    assert [path for path, _ in rows] == list(map(str, order))
    for (_, classes), shares in zip(rows, expected(model_file, order)):
        assert [name for name, _ in classes] == [NAMES[k] for k in np.argsort(-shares)]
        np.testing.assert_allclose([p for _, p in classes], np.sort(shares)[::-1], atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--top", "0"], "--top: must be a whole number, at least 1. Received: 0"),
        (["--batch", "0"], "--batch: must be a whole number, at least 1. Received: 0"),
        (["--threshold", "50"], "--threshold must lie between 0 and 1. Received: --threshold 50"),
        (["--out", "a.xlsx"], "--out must end in .csv, .jsonl, .parquet or .html, or --format"),
        (["--format", "parquet"], "--format parquet needs --out"),
        (["--attention", "--out", "a.csv"], "drawn on a page. Received: csv; give --out page.html"),
    ],
)
def test_wrong_options_are_named_before_the_model_is_opened(options, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        run(["predict", "nowhere", "nothing.png", *options])
