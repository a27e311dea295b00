"""`predict` in each format, beside softmax and top-k in NumPy."""

import base64
import csv
import html
import io
import json
import re

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image

import vit_keras
from tests import reference
from tests.helpers import randomize, to_numpy, weights_by_path, write_picture
from vit_keras import data
from vit_keras.commands import run
from vit_keras.models import Preprocessing, VisionTransformer
from vit_keras.support.tasks import Task
from vit_keras.weights import save_model

pytestmark = pytest.mark.on("torch")

NAMES = ["cat", "dog, small", '<i>"owl"</i> & co', "a very long name of a class"]
TOP, THRESHOLD = 3, 0.3


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of pictures of several sizes; one has a name that HTML and CSV must escape."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(1)
    for i, name in enumerate(["0.png", "1 <b>&\", '.png", "2.png", "3.png", "4.png"]):
        write_picture(folder / name, rng, (20 + i, 30))
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


def expected(model_file, paths):
    """Class probabilities, computed by the model itself."""
    model = vit_keras.open(model_file)
    how = model.preprocessing
    pixels = [data.resize(data.read_image(path, 3), (16, 16), how) for path in paths]
    return reference.softmax(to_numpy(model(data.normalize(np.stack(pixels), how))))


def read_columns(rows):
    """Rows of a CSV or Parquet file as paths with their classes."""
    places = range(1, TOP + 1)
    ranked = [f"{name}_{k}" for k in places for name in ("class", "probability")]
    assert list(rows[0]) == ["path", *ranked, "error"]
    pair = lambda row, k: (row[f"class_{k}"], np.float32(row[f"probability_{k}"]))
    return [(row["path"], [pair(row, k) for k in places if row[f"class_{k}"]]) for row in rows]


def read_lines(text):
    share = lambda c: (c["name"], np.float32(c["probability"]))
    rows = map(json.loads, text.splitlines())
    return [(row["path"], [*map(share, row["classes"])]) for row in rows]


def figures_of(page):
    """The attributes of each figure of a page, with its images, classes and text."""
    attributes = lambda tag: {
        k: html.unescape(v) for k, v in re.findall(r'([\w-]+)="([^"]*)"', tag)
    }
    for figure in page.split("<figure")[1:]:
        head, _, body = figure.partition(">")
        classes = re.findall(r'<span>(.*?)</span> <data value="(.*?)"', body)
        yield {
            **attributes(head),
            "path": html.unescape(re.search(r'<b title="(.*?)"', body)[1]),
            "images": [attributes(tag) for tag in re.findall(r"<img .*?>", body)],
            "classes": [(html.unescape(name), np.float32(share)) for name, share in classes],
            "text": html.unescape("".join(re.findall(r"<p>(.*?)</p>", body))),
        }


def pixels_of(image):
    """The pixels of an image that a page holds."""
    kind, _, text = image["src"].partition(";base64,")
    assert kind in ("data:image/jpeg", "data:image/png")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))).astype("float64")


def test_every_format_says_what_the_model_says(outputs, model_file, pictures):
    paths = sorted(pictures.iterdir())
    rows = []
    for path, shares in zip(paths, expected(model_file, paths)):
        order = np.argsort(-shares)[:TOP]
        rows.append((str(path), [(NAMES[k], shares[k]) for k in order if shares[k] >= THRESHOLD]))
    rows.append((str(outputs.parent / "bad.png"), []))
    assert {0, 1} < {len(classes) for _, classes in rows}  # the threshold leaves some out
    with open(outputs / "a.csv", newline="") as file:
        written = {"csv": read_columns(list(csv.DictReader(file)))}
    table = pyarrow.parquet.read_table(outputs / "a.parquet")
    written["parquet"] = read_columns(table.to_pylist())
    written["jsonl"] = read_lines((outputs / "a.jsonl").read_text())
    figures = figures_of((outputs / "a.html").read_text())
    written["html"] = [(figure["path"], figure["classes"]) for figure in figures]
    assert written["csv"] == written["jsonl"] == written["parquet"] == written["html"]
    assert [path for path, _ in written["csv"]] == [path for path, _ in rows]
    lines = (outputs / "a.txt").read_text().splitlines()
    for line, (path, found), (_, wanted) in zip(lines, written["csv"], rows, strict=True):
        names, shares = zip(*found) if found else ((), ())
        assert names == tuple(name for name, _ in wanted)
        np.testing.assert_allclose(shares, [share for _, share in wanted], atol=1e-5)
        texts = ", ".join(f"{name} {share:.1%}" for name, share in found)
        assert line.startswith(f"{path}: {texts}")


def test_a_picture_without_classes_says_why(outputs, model_file, pictures, capsys):
    lines = [json.loads(line) for line in (outputs / "a.jsonl").read_text().splitlines()]
    with open(outputs / "a.csv", newline="") as file:
        errors = [row["error"] or None for row in csv.DictReader(file)]
    *_, figure = figures_of((outputs / "a.html").read_text())
    assert [line["error"] for line in lines] == errors
    assert [bool(error) for error in errors] == [False] * 5 + [True]
    assert "bad.png' cannot be read as an image" in errors[-1]
    assert figure["text"] == errors[-1] and figure["class"] == "error"
    capsys.readouterr()
    command = ["predict", model_file, str(pictures / "0.png"), "--threshold", "0.999"]
    run(command)
    assert capsys.readouterr().out == f"{pictures / '0.png'}: no class at 99.9% or more\n"
    run([*command, "--format", "html"])
    (figure,) = figures_of(capsys.readouterr().out)
    assert figure["class"] == "none" and figure["text"] == "no class at 99.9% or more"


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        ("numbers", "--top 1", "--top does not apply to a model of numbers"),
        ("numbers", "--threshold 1", "--threshold does not apply to a model of numbers"),
        ("classes", "--tiles", "`tiles` needs a model of masks or boxes. Received: a model of cla"),
    ],
)
def test_an_option_that_a_kind_of_model_ignores_is_refused(tmp_path, rng, kind, words, message):
    model = randomize(VisionTransformer(16, 4, 24, 2, 3, 40, 2), rng)
    model.class_names, model.task = ["age", "size"], Task(kind)
    save_model(model, tmp_path / "a.keras")
    write_picture(tmp_path / "a.png", rng)
    with pytest.raises(ValueError, match=message):
        run(["predict", str(tmp_path / "a.keras"), str(tmp_path), *words.split()])


def test_a_page_holds_its_pictures(outputs, pictures):
    text = (outputs / "a.html").read_text()
    assert text.count("<script") == 1 and not re.search(r"(src|href)=.(?!data:)", text)
    *figures, unreadable = figures_of(text)
    assert not unreadable["images"]
    for figure, path in zip(figures, sorted(pictures.iterdir()), strict=True):
        original, (image,) = np.asarray(Image.open(path), "float64"), figure["images"]
        assert pixels_of(image).mean() == pytest.approx(original.mean(), abs=2)
        assert pixels_of(image).shape == original.shape
        assert figure.get("data-class") == (figure["classes"] or [[None]])[0][0]


def test_attention_is_a_layer_over_the_part_that_the_model_sees(tmp_path):
    """The layer's opacity is the rollout of Eq. 1-4, and its place that of the central crop."""
    rng = np.random.default_rng(3)
    model = randomize(VisionTransformer(16, 4, 24, 2, 3, 40, 4), rng, scale=0.5)
    model.preprocessing = Preprocessing(crop_fraction=0.8)
    save_model(model, tmp_path / "a.keras")
    pixels = write_picture(tmp_path / "a.png", rng, (40, 60))
    command = ["predict", str(tmp_path / "a.keras"), str(tmp_path / "a.png")]
    run([*command, "--out", str(tmp_path / "a.html"), "--attention"])
    (figure,) = figures_of((tmp_path / "a.html").read_text())
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


def test_a_failed_run_leaves_the_old_file(model_file, pictures, tmp_path):
    bad, out = tmp_path / "bad.png", tmp_path / "out" / "a.csv"
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
    run(["predict", model_file, "-", str(pictures / "[24].png"), "--format", "jsonl"])
    found = [path for path, _ in read_lines(capsys.readouterr().out)]
    assert found == [str(paths[k]) for k in (3, 4, 0, 2)]
