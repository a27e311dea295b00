"""Fine-tuning on a folder of real pictures, from a checkpoint in Google's format."""

import json

import numpy as np
import pytest
from PIL import Image

import vit_keras
from tests.helpers import assert_close, randomize, weights_by_path
from vit_keras import commands, evaluation
from vit_keras.models import VisionTransformer
from vit_keras.support.resizing import resize_position_embeddings
from vit_keras.weights import save

pytestmark = pytest.mark.on("torch")

SIZES = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 48}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Crops of scikit-learn's two photographs, a temple and a flower, as JPEG files by class."""
    from sklearn.datasets import load_sample_images

    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for name, photograph in zip(("temple", "flower"), load_sample_images().images):
        (folder / name).mkdir()
        for i in range(60):
            top, left = rng.integers(0, 427 - 120), rng.integers(0, 640 - 160)
            crop = photograph[top : top + 120, left : left + 160]
            Image.fromarray(crop).save(folder / name / f"{i:02d}.jpg", quality=92)
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A pre-trained model in Google's format: 7 classes at 32 pixels, with a pre-logits layer."""
    model = VisionTransformer(32, 8, **SIZES, num_classes=7, representation_size=24, gelu="tanh")
    randomize(model, np.random.default_rng(1), scale=0.2)
    path = tmp_path_factory.mktemp("weights") / "pretrained.npz"
    save(model, path, format="google")
    return model, path


def arguments(pictures, path, folder, steps):
    sizes = {**SIZES, "variant": "null", "patch_size": 8, "image_size": 48, "weights": path}
    fields = {f"model.{name}": value for name, value in {**sizes, "channels": 3}.items()}
    fields |= {"dataset": f"folder:{pictures}", "data.test_percent": 25, "workdir": folder}
    fields |= {"optimizer.name": "sgd", "optimizer.learning_rate": 0.03, "batch": 32}
    fields |= {"optimizer.momentum_dtype": "bfloat16", "optimizer.warmup_steps": 5}
    fields |= {"optimizer.weight_decay": 0.0, "augment.crop": "inception", "augment.flip": "true"}
    fields |= {"total_steps": steps, "eval_every": 20, "batch_eval": 30}
    return ["train", *(f"--{name}={value}" for name, value in fields.items())]


def test_the_run_starts_from_the_weights_of_the_checkpoint(pictures, checkpoint, tmp_path):
    source, path = checkpoint
    commands.run(arguments(pictures, path, tmp_path / "run", steps=0))
    started = weights_by_path(vit_keras.open(tmp_path / "run" / "model.keras"))
    expected = weights_by_path(source)
    expected["posembed_input/pos_embedding"] = resize_position_embeddings(
        expected["posembed_input/pos_embedding"], (4, 4), (6, 6), "bilinear"
    )
    for name, value in started.items():
        if name.startswith("head/"):
            assert not value.any()
        else:
            assert_close(value, expected[name], rtol=1e-6, name=name)
    assert started.keys() == {n for n in expected if not n.startswith("pre_logits")}


@pytest.mark.slow
def test_the_pictures_are_learned(pictures, checkpoint, tmp_path):
    commands.run(arguments(pictures, checkpoint[1], tmp_path / "run", steps=80))
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["images"] == 30 and report["accuracy"] >= 0.9
    model = vit_keras.open(tmp_path / "run" / "model.keras")
    assert list(model.class_names) == ["flower", "temple"]
    files = [str(pictures / name / "00.jpg") for name in ("temple", "flower")]
    predictor, _ = evaluation.open_predictor(tmp_path / "run")
    rows = evaluation.predict_files(predictor, files)
    assert [row.classes[0][0] for row in rows] == ["temple", "flower"]
