"""The demo's page in headless Chromium, first with its server and then without."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from scipy.stats import spearmanr

from tests.helpers import ROOT, randomize, run_script
from vit_keras import exporting, runtimes
from vit_keras.exporting import samples
from vit_keras.models import VisionTransformer

pytestmark = pytest.mark.once
DEMO = ROOT / "demo"
NEEDED = ("chromium", "node", "npm")
MISSING = [program for program in NEEDED if shutil.which(program) is None]


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    model = VisionTransformer(64, 16, 24, 2, 3, 48, 7)
    randomize(model, np.random.default_rng(0))
    model.class_names = ["ant", "bee", "crab", "deer", "elk", "fox", "gnu"]
    folder = tmp_path_factory.mktemp("demo") / "export"
    exporting.export(
        model,
        folder,
        images=samples.photographs((64, 64, 3), 8),
        formats=["litert"],
        precisions=["fp32", "int8"],
        attention=True,
        threads=(),
    )
    return folder


@pytest.fixture(scope="module")
def page():
    """Installs the page's runtime; npm fetches it once."""
    if MISSING:
        pytest.skip(f"not installed: {' '.join(MISSING)}")
    if not (DEMO / "node_modules" / "puppeteer-core").is_dir():
        done = subprocess.run(["npm", "ci", "--prefix", DEMO], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"npm cannot install the packages: {done.stderr[-300:]}")


@pytest.fixture
def served(page, export):
    command = [sys.executable, str(DEMO / "serve.py"), str(export), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def test_choosing_pictures_shows_classes_and_attention(served, export, tmp_path):
    server, url = served
    pictures = [samples.photographs((64, 64, 3), 3)[2], np.zeros((64, 64, 3), "uint8")]
    paths = [tmp_path / name for name in ("flower.png", "black.png")]
    for picture, path in zip(pictures, paths):
        Image.fromarray(picture).save(path)
    command = ["node", DEMO / "click.js", url, tmp_path / "page.png", *paths]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    where = {**os.environ, "CHROMIUM": shutil.which("chromium")}
    clicks = subprocess.Popen(list(map(str, command)), text=True, env=where, **pipes)
    first = clicks.stdout.readline()
    server.terminate()
    server.wait()
    rest, errors = clicks.communicate("go on\n", timeout=600)
    assert clicks.returncode == 0, errors
    answers, offline = json.loads(first), json.loads(rest)["offline"]
    assert answers["chosen"]["threads"]
    for file, precision in (("model.tflite", "fp32"), ("model_int8.tflite", "int8")):
        check(answers[precision]["cards"], export / file, pictures[::-1], precision)
    check_latencies(answers)
    check_colors(answers)
    assert (answers["camera"], answers["cleared"]) == ("Camera", 0)
    assert all(address.startswith(url) for address in answers["asked"])  # no other machine
    rows = [card["rows"] for card in answers["chosen"]["cards"]]
    assert [card["rows"] for card in offline["cards"]] == rows
    assert Image.open(tmp_path / "page.png").size == (480, 860)


def check(cards, file, pictures, precision):
    """Compares the page's answers with the same file in LiteRT for Python; the last comes first."""
    assert [card["name"] for card in cards] == ["black.png", "flower.png"]
    names = np.array((file.parent / "labels.txt").read_text().split())
    for card, picture in zip(cards, pictures, strict=True):
        expected = runtimes.open(file)(picture[None])[0]
        order = np.argsort(-expected)
        assert [row["name"] for row in card["classes"]] == list(names[order])
        probabilities = [row["probability"] for row in card["classes"]]
        np.testing.assert_allclose(probabilities, expected[order], atol=1e-4)
        shown = [re.fullmatch(r"(\w+)\s+([\d.]+) %", row).groups() for row in card["rows"]]
        assert [name for name, _ in shown] == list(names[order[:5]])
        percents = 100 * expected[order[:5]]
        np.testing.assert_allclose([float(p) for _, p in shown], percents, atol=0.06)
        bars = [float(width.rstrip("%")) for width in card["bars"]]
        np.testing.assert_allclose(bars, percents, atol=0.06)
        assert card["precision"] == precision and len(card["attention"]) == 16


def check_latencies(answers):
    """Each file that was chosen has its median time beside its name, and each card its own."""
    int8, both = answers["chosen"], answers["fp32"]
    assert [card["precision"] for card in int8["cards"]] == ["int8", "int8"]  # the smallest file
    labels = [label.strip() for label in int8["files"]]
    assert re.fullmatch(r"int8 [\d.]+ ms", labels[0]) and labels[1] == "fp32"
    slower = max(card["milliseconds"] for card in both["cards"])  # the median of two
    expected = [labels[0], f"fp32 {slower:.1f} ms"]
    assert [label.strip() for label in both["files"]] == expected
    latencies = [f"fp32, {card['milliseconds']:.1f} ms" for card in both["cards"]]
    assert [card["latency"] for card in both["cards"]] == latencies


def check_colors(answers):
    """On a black picture, more attention is brighter, and it vanishes with its checkbox."""
    for card in answers["fp32"]["cards"][:1]:
        attention, brightness = np.array(card["attention"]), np.array(card["brightness"])
        assert spearmanr(attention, brightness).statistic > 0.9
        assert brightness[attention.argmax()] > 100  # of 255
    assert max(answers["withoutAttention"]["cards"][0]["brightness"]) == 0


def test_a_folder_without_an_export_is_not_served(tmp_path):
    done = run_script("demo/serve.py", tmp_path, check=False)
    assert (
        done.returncode
        and "EXPORT must be a folder with an exported TFLite file. Received" in done.stderr
    )
