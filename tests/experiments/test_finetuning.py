"""Recipes for a folder of own pictures, on a few pictures and tiny models."""

import json

import numpy as np
import pytest

import vit_keras
from examples import shapes_on_photographs as shapes
from tests.helpers import randomize, weights_by_path
from vit_keras import runs
from vit_keras.commands import run
from vit_keras.models import Preprocessing, VisionTransformer
from vit_keras.weights import save

pytestmark = [pytest.mark.on("torch"), pytest.mark.slow]  # which compiles nothing
TINY = {"hidden_size": 12, "num_layers": 3, "num_heads": 2, "mlp_dim": 16, "num_classes": 7}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos") / "shapes"
    shapes.main([str(folder), "--classes", "circle", "star", "--count", "20", "--test_count", "6"])
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A tiny model in Hugging Face's format, with another data set's head and pixels."""
    model = randomize(VisionTransformer(16, 8, **TINY), np.random.default_rng(1), scale=0.2)
    model.preprocessing = Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    folder = tmp_path_factory.mktemp("checkpoint") / "hf"
    save(model, folder, format="huggingface")
    return model, folder


def moved(recipe, photos, checkpoint, folder):
    """Trains two epochs by a recipe; how far each block moved, relative to its size."""
    source, path = checkpoint
    words = ["--config", recipe, "--dataset", f"folder:{photos}", "--model.weights", path]
    run(["train", *map(str, words), "--epochs", "2", "--batch", "8", "--workdir", str(folder)])
    model = vit_keras.open(folder / "model.keras")
    assert model.preprocessing.mean == (0.485, 0.456, 0.406)
    before, after = weights_by_path(source), weights_by_path(model)
    changes = {}
    for name in before.keys() - {"head/kernel", "head/bias"}:
        squares = changes.setdefault(name.split("/")[0], [0.0, 0.0])
        squares[0] += np.square(after[name] - before[name]).sum()
        squares[1] += np.square(before[name]).sum()
    assert after["head/kernel"].shape == (12, 2) and after["head/kernel"].any()
    return {layer: np.sqrt(change / size) for layer, (change, size) in changes.items()}


def test_finetune_moves_lower_blocks_less(photos, checkpoint, tmp_path):
    distances = moved("finetune", photos, checkpoint, tmp_path / "run")
    blocks = [distances[f"encoderblock_{i}"] for i in range(3)]
    assert distances["embedding"] > 0 and 0 < blocks[0] < blocks[1] < blocks[2]
    recorded = runs.find_run(tmp_path / "run").config
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert recorded.patience and report["images"] == 4  # of 20, the test pictures are not used


def test_small_starts_anew(photos, tmp_path):
    words = ["--config", "scratch/small", "--dataset", f"folder:{photos}", "--epochs", "1"]
    run(["train", *words, "--workdir", str(tmp_path / "run")])
    model = vit_keras.open(tmp_path / "run" / "model.keras")
    assert model.input_shape[1:] == (36, 36, 3) and model.count_params() < 500_000
    assert json.loads((tmp_path / "run" / "report.json").read_text())["images"] == 6
