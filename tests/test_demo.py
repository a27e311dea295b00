"""The demo's page in headless Chromium, first with its server and then without."""

import dataclasses
import itertools
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

from tests.helpers import ROOT, randomize
from vit_keras import data, exporting, models, runtimes
from vit_keras.exporting import verification
from vit_keras.models import Preprocessing, VisionTransformer
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.once
DEMO = ROOT / "demo"
MISSING = [name for name in ("chromium", "node", "npm") if shutil.which(name) is None]
NAMES = ["ant", "bee", "crab", "deer", "elk", "fox", "gnu"]
RULE = Preprocessing(crop_fraction=0.875, interpolation="bicubic")


def encoder(num_classes=None):
    model = VisionTransformer(64, 16, 24, 2, 3, 48, num_classes)
    return randomize(model, np.random.default_rng(0))


def write_export(model, folder, **options):
    images = verification.photographs((64, 64, 3), 8)
    options = {"formats": ["onnx"], "precisions": ["fp32"], **options}
    exporting.export(model, folder, images=images, **options)


@pytest.fixture(scope="module")
def page():
    """Installs the page's runtime; npm fetches it once."""
    if MISSING:
        pytest.skip(f"not installed: {' '.join(MISSING)}")
    if not (DEMO / "node_modules" / "puppeteer-core").is_dir():
        done = subprocess.run(["npm", "ci", "--prefix", DEMO], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"npm cannot install the packages: {done.stderr[-300:]}")


def click(folder, pictures):
    """What the page shows of `{name: pixels}`, with its server and then without."""
    paths = [folder / f"{name}.png" for name in pictures]
    for picture, path in zip(pictures.values(), paths):
        Image.fromarray(picture).save(path)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, str(DEMO / "serve.py"), str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().strip()
            command = ["node", DEMO / "click.js", url, folder / "page.png", *paths]
            where = {**os.environ, "CHROMIUM": shutil.which("chromium")}
            clicks = subprocess.Popen(list(map(str, command)), text=True, env=where, **pipes)
            first = clicks.stdout.readline()
        finally:
            server.terminate()
    rest, errors = clicks.communicate("go on\n", timeout=600)
    assert clicks.returncode == 0, errors
    answers = json.loads(first)
    assert all(address.startswith(url) for address in answers["asked"])  # no other machine
    return answers, json.loads(rest)["offline"]


def flower(height, width):
    return verification.photographs((height, width, 3), 3)[2]


def test_choosing_pictures_shows_classes_and_attention(page, tmp_path):
    model, export = encoder(7), tmp_path / "export"
    model.class_names, model.preprocessing = NAMES, RULE
    write_export(model, export, precisions=["fp32", "int8"], attention=True)
    pictures = {"flower": flower(90, 130), "black": np.zeros((64, 64, 3), "uint8")}
    answers, offline = click(export, pictures)
    assert answers["chosen"]["threads"]
    resized = [data.resize(picture, (64, 64), RULE) for picture in pictures.values()]
    for file, precision in (("model.onnx", "fp32"), ("model_int8.onnx", "int8")):
        check(answers[f"{precision}, wasm"]["cards"], export / file, resized[::-1], precision)
    check_colors(answers)
    assert (answers["camera"], answers["cleared"]) == ("Camera", 0)
    rows = [card["rows"] for card in answers["chosen"]["cards"]]
    assert [card["rows"] for card in offline["cards"]] == rows
    assert Image.open(export / "page.png").size == (480, 860)


RESIZE = """
import { resized } from "./pixels.js";
import { readFileSync } from "node:fs";
const cases = JSON.parse(readFileSync(0));
const answers = cases.map(({ data, width, height, size, channels, rule }) =>
  Array.from(resized({ data: Uint8Array.from(data), width, height }, size, channels, rule)));
console.log(JSON.stringify(answers));
"""
RULES = [
    Preprocessing(interpolation=method, crop_fraction=crop, rounding=rounding, antialias=smooth)
    for method in ("bilinear", "bicubic")
    for crop in (None, 0.9)
    for rounding, smooth in (("torchvision", True), ("transformers", True), ("none", False))
]


@pytest.mark.skipif(shutil.which("node") is None, reason="not installed: node")
@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_are_resized_as_in_training(rng, channels):
    cases, expected = [], []
    for rule, (height, width) in itertools.product(RULES, [(31, 45), (90, 61), (12, 9)]):
        rgba = rng.integers(0, 256, (height, width, 4), dtype="uint8")
        picture = np.asarray(
            Image.fromarray(rgba[..., :3]).convert("L" if channels == 1 else "RGB")
        )
        pixels = data.resize(picture.reshape(height, width, channels), (24, 20), rule)
        expected.append(np.rint(pixels).ravel())
        case = {"data": rgba.ravel().tolist(), "width": width, "height": height}
        fields = dataclasses.asdict(rule)
        cases.append({**case, "size": [24, 20], "channels": channels, "rule": fields})
    command = ["node", "--input-type=module", "-e", RESIZE]
    asked = {"input": json.dumps(cases), "capture_output": True, "text": True, "cwd": DEMO}
    done = subprocess.run(command, **asked)
    assert done.returncode == 0, done.stderr
    for case, told, pixels in zip(cases, json.loads(done.stdout), expected, strict=True):
        is_exact = case["rule"]["rounding"] != "none"  # others round a sum of floats
        bound = {"atol": 0 if is_exact else 1, "err_msg": str(case["rule"])}
        np.testing.assert_allclose(told, pixels, **bound)


def shown_and_expected(model, folder):
    """The page's answers, and for each picture its card and the answer of the file in Python."""
    write_export(model, folder)
    pictures = {"flower": flower(48, 100), "black": np.zeros((64, 64, 3), "uint8")}
    answers, _ = click(folder, pictures)
    cards = answers["fp32, wasm"]["cards"][::-1]  # the last comes first
    pixels = [data.resize(x, (64, 64), model.preprocessing) for x in pictures.values()]
    run = runtimes.open(folder / "model.onnx")
    expected = [run(picture[None].astype("uint8"))[0] for picture in pixels]
    assert max(map(max, answers["plain"]["cards"][0]["colors"])) == 0
    return list(zip(cards, expected, strict=True))


@pytest.mark.nightly
def test_masks_are_colored_and_measured(page, tmp_path):
    model = randomize(models.segmenter(encoder(), 3), np.random.default_rng(1))
    model.class_names = ["sky", "sea", "sand"]
    for card, answer in shown_and_expected(model, tmp_path / "out"):
        shares = answer.reshape(-1, 3)
        clear = np.diff(np.sort(shares, axis=-1)[:, -2:], axis=-1)[:, 0] > 1e-3
        mask = np.array(card["mask"])
        np.testing.assert_array_equal(mask[clear], shares.argmax(axis=-1)[clear])
        assert clear.mean() > 0.99
        counts = np.bincount(mask, minlength=3) / mask.size
        order = [k for k in np.argsort(-counts, kind="stable") if counts[k]]
        expected = [f"{model.class_names[k]} {100 * counts[k]:.1f}%" for k in order]
        assert [" ".join(row.split()) for row in card["rows"]] == expected
    cells = mask.reshape(64, 64)[2::4, 2::4].ravel()  # of the black picture
    seen = np.array(card["colors"])
    assert len(np.unique(cells)) > 1 and seen.max() > 100
    for k in np.unique(cells):  # one color for each class, and only one
        assert np.ptp(seen[cells == k], axis=0).max() <= 2
    assert len(np.unique(seen // 8, axis=0)) == len(np.unique(cells))


@pytest.mark.nightly
def test_boxes_are_drawn_from_their_thresholds_on(page, tmp_path):
    joined = models.with_joined_boxes(models.detector(encoder(), num_classes=3))
    model = randomize(joined, np.random.default_rng(3))
    model.class_names = ["cat", "dog", "cow"]
    model.task = Task("boxes", thresholds=(0.4, 0.5, 0.6))
    for card, answer in shown_and_expected(model, tmp_path / "out"):
        scores, best = answer[:, :3].max(axis=-1), answer[:, :3].argmax(axis=-1)
        kept = np.flatnonzero(scores >= np.take(model.task.thresholds, best))
        kept = kept[np.argsort(-scores[kept], kind="stable")]
        assert [row["class"] for row in card["boxes"]] == list(best[kept])
        told = [[row["probability"], *row["box"]] for row in card["boxes"]]
        expected = np.column_stack([scores[kept], answer[kept, 3:]])
        np.testing.assert_allclose(told, expected, atol=1e-4)
        assert 1 < len(kept) < len(scores)
    seen = np.max(card["colors"], axis=-1)  # left of the boxes, on black
    assert np.mean(seen > 50) > 0.5  # others lie under a name or at the border


def check(cards, file, pictures, precision):
    """Compares the page's answers with the same file in Python; the last comes first."""
    assert [card["name"] for card in cards] == ["black.png", "flower.png"]
    names = np.array((file.parent / "labels.txt").read_text().split())
    for card, picture in zip(cards, pictures, strict=True):
        expected = runtimes.open(file)(picture[None].astype("uint8"))[0]
        order = np.argsort(-expected)
        assert [row["name"] for row in card["classes"]] == list(names[order])
        probabilities = [row["probability"] for row in card["classes"]]
        np.testing.assert_allclose(probabilities, expected[order], atol=1e-4)
        shown = [re.fullmatch(r"(\w+)\s+([\d.]+)%", row).groups() for row in card["rows"]]
        assert [name for name, _ in shown] == list(names[order[:5]])
        percents = 100 * expected[order[:5]]
        np.testing.assert_allclose([float(p) for _, p in shown], percents, atol=0.06)
        bars = [float(width.rstrip("%")) for width in card["bars"]]
        np.testing.assert_allclose(bars, percents, atol=0.06)
        assert card["precision"] == precision and len(card["attention"]) == 16


def check_colors(answers):
    """On a black picture, more attention is brighter, and it vanishes with its checkbox."""
    for card in answers["fp32, wasm"]["cards"][:1]:
        attention = np.array(card["attention"])
        brightness = np.array(card["colors"]) @ [0.299, 0.587, 0.114]
        assert spearmanr(attention, brightness).statistic > 0.9
        assert brightness[attention.argmax()] > 100  # of 255
    assert max(map(max, answers["plain"]["cards"][0]["colors"])) == 0
