"""Runs on pictures of more than 8 bits or 3 channels, from training to exported files."""

import json
import shutil

import numpy as np
import pytest

import vit_keras
from tests.data.deep_pictures import tiff, write_textures
from tests.helpers import assert_close
from vit_keras import data, evaluation, retrieval
from vit_keras.commands import run
from vit_keras.config import parse_config
from vit_keras.experiments import train_run

FIELDS = (
    *("--model.image_size", "16", "--model.patch_size", "8", "--model.classifier", "gap"),
    *("--model.hidden_size", "16", "--model.num_layers", "1", "--model.num_heads", "2"),
    *("--model.mlp_dim", "32", "--batch", "16", "--epochs", "48", "--kernels", "default"),
    *("--optimizer.name", "adamw", "--optimizer.learning_rate", "0.01"),
    *("--eval_every", "1000", "--checkpoint_every", "1000"),
)


@pytest.mark.on("torch")
def test_a_run_of_six_channels_goes_from_check_to_exported_files(tmp_path, capsys):
    """The textures differ below the eighth bit."""
    pictures, folder = tmp_path / "tiff6", tmp_path / "run"
    kind = {"photometric": "minisblack", "planarconfig": "contig", "compression": "lzw"}
    write = lambda path, x: path.with_suffix(".tif").write_bytes(tiff(x, **kind))
    write_textures(pictures, np.random.default_rng(7), 32, write, channels=6)
    options = ("--model.channels", "3", "--data.bands", "5", "1", "6")
    words = [*FIELDS, *options, "--dataset", f"folder:{pictures}", "--workdir", str(folder)]
    report = train_run(parse_config(words, default=""))
    assert report["accuracy"] >= 0.95
    assert "levels: 4095" in (folder / "config.yaml").read_text()
    how = vit_keras.open(folder / "model.keras").preprocessing
    assert (how.levels, how.bands) == (4095, (5, 1, 6))
    run(["check", f"folder:{pictures}", *options, "--out", str(tmp_path / "sheet.png")])
    assert "level of white: 4095" in capsys.readouterr().out
    run(["evaluate", str(folder)])
    assert f"accuracy {report['accuracy']:.2%}" in capsys.readouterr().out

    run(["export", str(folder), "--format", "onnx", "litert", "--precision", "fp32"])
    manifest = json.loads((folder / "export" / "manifest.json").read_text())
    assert manifest["input"]["type"] == "float32"
    assert manifest["input"]["preprocessing"]["levels"] == 4095
    assert manifest["input"]["preprocessing"]["bands"] == [5, 1, 6]
    files = sorted(pictures.glob("test/*/*.tif"))
    expected = probabilities(folder, files)
    for name in ("model.onnx", "model.tflite"):
        assert_close(probabilities(folder / "export" / name, files), expected, 1e-5)
        shutil.copy(folder / "export" / name, tmp_path / name)  # without its manifest
        assert_close(probabilities(tmp_path / name, files), expected, 1e-5)

    embedder = retrieval.open_embedder(folder)
    by_file = retrieval.list_pictures([pictures], 3, embedder.pixels)
    by_data_set = retrieval.list_pictures([f"folder:{pictures}"], 3, embedder.pixels)
    for number, picture in enumerate(by_data_set.pictures):
        pixels = [x.read(number, picture.path, 3) for x in (by_file, by_data_set)]
        np.testing.assert_array_equal(*pixels)
        np.testing.assert_array_equal(pixels[0], data.read_image(picture.path, 3, bands=(5, 1, 6)))


def probabilities(source, files):
    predictor, _ = evaluation.open_predictor(source)
    rows = evaluation.predict_files(predictor, files, top=2)
    return np.array([[dict(row.classes)[name] for name in ("across", "down")] for row in rows])
