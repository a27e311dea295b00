"""The demo's page in headless Chromium, first with its server and then without."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tests.helpers import ROOT, randomise, run_script
from vit_keras import exporting, runtimes
from vit_keras.exporting import samples
from vit_keras.models import VisionTransformer

pytestmark = pytest.mark.once
DEMO = ROOT / "demo"
NEEDED = ("chromium", "node", "npm")
MISSING = [program for program in NEEDED if shutil.which(program) is None]


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    model = VisionTransformer(64, 16, 24, 3, 3, 48, 7)
    randomise(model, np.random.default_rng(0))
    model.class_names = ["ant", "bee", "crab", "deer", "elk", "fox", "gnu"]
    folder = tmp_path_factory.mktemp("demo") / "export"
    exporting.export(
        model,
        folder,
        images=samples.photographs((64, 64, 3), 8),
        formats=["litert"],
        precisions=["fp32"],
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


def test_choosing_a_picture_shows_classes_and_attention(export, served, tmp_path):
    server, url = served
    image = samples.photographs((64, 64, 3), 3)[2]
    Image.fromarray(image).save(tmp_path / "flower.png")
    command = ["node", DEMO / "click.js", url, tmp_path / "flower.png", tmp_path / "page.png"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    where = {**os.environ, "CHROMIUM": shutil.which("chromium")}
    clicks = subprocess.Popen(list(map(str, command)), text=True, env=where, **pipes)
    first = clicks.stdout.readline()
    server.terminate()
    server.wait()
    rest, errors = clicks.communicate("go on\n", timeout=600)
    assert clicks.returncode == 0, errors
    answers, offline = json.loads(first), json.loads(rest)["offline"]
    check(answers, export, image)
    assert all(address.startswith(url) for address in answers["asked"])  # no other machine
    assert offline["rows"] == answers["chosen"]["rows"]
    assert Image.open(tmp_path / "page.png").size == (480, 860)


def check(answers, export, image):
    """Compares the page's answers with the same file in LiteRT for Python."""
    chosen = answers["chosen"]
    expected = runtimes.open_file(export / "model.tflite")(image[None])[0]
    names = np.array((export / "labels.txt").read_text().split())
    order = np.argsort(-expected)
    assert [row["name"] for row in chosen["classes"]] == list(names[order])
    probabilities = [row["probability"] for row in chosen["classes"]]
    np.testing.assert_allclose(probabilities, expected[order], atol=1e-4)
    shown = [re.fullmatch(r"(\w+)\s+([\d.]+) %", row).groups() for row in chosen["rows"]]
    assert [name for name, _ in shown] == list(names[order[:5]])
    np.testing.assert_allclose([float(p) for _, p in shown], 100 * expected[order[:5]], atol=0.06)
    bars = [float(width.rstrip("%")) for width in chosen["bars"]]
    np.testing.assert_allclose(bars, 100 * expected[order[:5]], atol=0.06)
    assert len(chosen["attention"]) == 16 and chosen["grid"] == [4, 4] and chosen["threads"]
    assert re.fullmatch(r"[\d.]+ ms", chosen["latency"])
    assert chosen["brightness"] < answers["brightnessWithoutAttention"] - 3  # it dims the picture
    assert answers["camera"] == 5


def test_a_folder_without_an_export_is_not_served(tmp_path):
    done = run_script("demo/serve.py", tmp_path, check=False)
    assert (
        done.returncode
        and "EXPORT must be a folder with an exported TFLite file. Received" in done.stderr
    )


def test_the_versions_of_the_page_are_exact():
    package = json.loads((DEMO / "package.json").read_text())
    lock = json.loads((DEMO / "package-lock.json").read_text())["packages"]
    for name, version in {**package["dependencies"], **package["devDependencies"]}.items():
        assert lock[f"node_modules/{name}"]["version"] == version
    listed = pathlib.Path(ROOT / ".gitignore").read_text().split()
    assert "node_modules/" in listed
