"""Runs on pictures of more than 8 bits or 3 channels, from training to exported files."""

import json
import shutil

import numpy as np
import pytest

import vit_keras
from tests.data.deep_pictures import npy, png, tiff, write_textures
from tests.exporting.builds import small_model
from tests.helpers import assert_close
from vit_keras import data, evaluation, exporting, retrieval
from vit_keras.commands import run
from vit_keras.config import parse_config
from vit_keras.experiments import train_run
from vit_keras.models import Preprocessing

FIELDS = (
    *("--model.image_size", "16", "--model.patch_size", "8", "--model.classifier", "gap"),
    *("--model.hidden_size", "16", "--model.num_layers", "1", "--model.num_heads", "2"),
    *("--model.mlp_dim", "32", "--batch", "16", "--epochs", "48", "--kernels", "default"),
    *("--optimizer.name", "adamw", "--optimizer.learning_rate", "0.01"),
    *("--eval_every", "1000", "--checkpoint_every", "1000"),
)
WRITERS = {
    "png": lambda path, x: path.with_suffix(".png").write_bytes(png(x[..., 0])),
    "npy": lambda path, x: path.with_suffix(".npy").write_bytes(npy(x)),
    "cut": lambda path, x: path.with_suffix(".npy").write_bytes(npy((x >> 8).astype("uint8"))),
    "tiff": lambda path, x: path.with_suffix(".tif").write_bytes(
        tiff(x, photometric="minisblack", planarconfig="contig", compression="lzw")
    ),
}


def trained(folder, kind, channels, *more, count=32):
    """A run on textures, written by a row of `WRITERS`: its folder and its report."""
    pictures = folder / f"{kind}{channels}"
    if not pictures.exists():
        write_textures(pictures, np.random.default_rng(7), count, WRITERS[kind], channels)
    words = [*FIELDS, "--dataset", f"folder:{pictures}", "--workdir", str(folder / f"run_{kind}")]
    channels = ["--model.channels", str(channels)] if "--model.channels" not in more else []
    return folder / f"run_{kind}", train_run(parse_config([*words, *channels, *more], default=""))


@pytest.mark.on("torch")
@pytest.mark.parametrize("kind", ["png", pytest.param("npy", marks=pytest.mark.nightly)])
def test_a_texture_below_the_eighth_bit_is_learned(tmp_path, kind):
    folder, report = trained(tmp_path, kind, 1)
    assert report["accuracy"] >= 0.95
    assert "levels: 4095" in (folder / "config.yaml").read_text()
    model = vit_keras.open(folder / "model.keras")
    assert model.preprocessing.levels == 4095
    _, cut = trained(tmp_path, "cut", 1)  # the high bits alone say nothing
    assert cut["accuracy"] < 0.75


@pytest.mark.on("torch")
def test_a_run_of_six_channels_goes_from_check_to_exported_files(tmp_path, capsys):
    options = ("--model.channels", "3", "--data.bands", "5", "1", "6")
    folder, report = trained(tmp_path, "tiff", 6, *options)
    assert report["accuracy"] >= 0.95
    pictures = tmp_path / "tiff6"
    how = vit_keras.open(folder / "model.keras").preprocessing
    assert (how.levels, how.bands) == (4095, (5, 1, 6))
    run(["check", f"folder:{pictures}", *options, "--out", str(tmp_path / "sheet.png")])
    assert "of which data.levels makes 4095 white" in capsys.readouterr().out
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


@pytest.mark.on("torch")
@pytest.mark.nightly  # the run above exports a model of 12 bits
@pytest.mark.parametrize(("white", "dtype"), [(65535, "uint16"), (4095, "uint16"), (1, "float32")])
def test_exported_files_take_the_depth_of_the_model(tmp_path, rng, white, dtype):
    model = small_model(rng, channels=4)
    model.preprocessing = Preprocessing((0.2, 0.4, 0.5, 0.6), (0.3, 0.2, 0.25, 0.5), levels=white)
    images = (white * rng.random((12, 8, 12, 4))).astype(dtype)
    rows = exporting.export(
        model,
        tmp_path / "files",
        images=images,
        formats=["onnx", "litert"],
        precisions=["fp32"],
        threads=(),
    )
    prepared = (images / white - [0.2, 0.4, 0.5, 0.6]) / [0.3, 0.2, 0.25, 0.5]
    expected = model.predict(prepared.astype("float32"), verbose=0)
    for row in rows:
        predictor, _ = evaluation.open_predictor(tmp_path / "files" / row["file"])
        assert predictor.preprocessing.levels == white
        pixels = predictor.preprocessing.normalize(images.astype("float32"))
        logits = np.log(predictor.run(pixels.astype("float32")))
        centered = lambda x: x - x.mean(axis=-1, keepdims=True)
        assert_close(centered(logits), centered(expected), 2e-4, row["file"])
