"""Runs whose head is made of text embeddings start from the answers without training."""

import numpy as np
import pytest
from PIL import Image

import vit_keras
from tests.helpers import assert_close, randomize, to_numpy
from tests.training.kill import model_differences
from tests.training.small import copy_as_killed
from vit_keras import commands, models, weights
from vit_keras.config import Config, parse_config
from vit_keras.experiments import train_run
from vit_keras.experiments.starting_point import complete_model, initial_model

NAMES = ("cat", "dog", "small owl")
FIELDS = {
    "model.adapter_dim": 5,
    "optimizer.freeze": '["[!a]*"]',
    "optimizer.learning_rate": 0.03,
    "cache_features": "true",
    "batch": 6,
    "total_steps": 6,
    "eval_every": 3,
    "checkpoint_every": 2,
    "kernels": "default",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a CLIP of transformers, a SigLIP's image tower, pictures, and embeddings."""
    place, rng = tmp_path_factory.mktemp("words"), np.random.default_rng(0)
    image = models.VisionTransformer(
        *(16, 8, 24, 1, 3, 40, 10), pre_norm=True, head_use_bias=False, gelu="quick"
    )
    text = models.TextTransformer(20, 8, 16, 1, 2, 32, 10, gelu="quick")
    towers = models.ImageText(models.with_unit_length(randomize(image, rng)), text, 2.0)
    weights.save(towers, place / "softmax", format="huggingface")
    siglip = models.VisionTransformer(16, 8, 24, 1, 3, 40, None, classifier="map")
    weights.save(randomize(siglip, rng), place / "sigmoid", format="huggingface")
    for kind, width in (("softmax", 10), ("sigmoid", 24)):
        rows = rng.normal(size=(4, width)).astype("float32")
        texts = weights.TextEmbeddings(("small owl", "dog", "bee", "cat"), rows, 9.0, -0.5, kind)
        weights.write_text_embeddings(place / f"{kind}.npz", texts)
    for name, level in zip(NAMES, (40, 120, 200)):
        for split, count in (("train", 6), ("test", 4)):
            folder = place / "photos" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(level - 40, level + 50, (16, 16, 3), dtype="uint8")
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return place


def config(place, workdir=None, kind="softmax", **fields) -> Config:
    fields = {
        "dataset": f"folder:{place / 'photos'}",
        "model.weights": place / kind,
        "model.labels": place / f"{kind}.npz",
        "workdir": workdir or place / "run",
        **FIELDS,
        **fields,
    }
    return parse_config([f"--{name}={value}" for name, value in fields.items()], default="")


@pytest.mark.on("torch")
@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_training_starts_from_the_answer_without_training(place, kind):
    """To the bit, for the classes of the data among the labels of the file."""
    images = np.random.default_rng(1).normal(size=(5, 16, 16, 3)).astype("float32")
    plain = weights.with_text_head(vit_keras.open(place / kind), place / f"{kind}.npz", NAMES)
    model = initial_model(complete_model(config(place, kind=kind)), NAMES)
    np.testing.assert_array_equal(to_numpy(model(images)), to_numpy(plain(images)))
    whole = weights.with_text_head(vit_keras.open(place / kind), place / f"{kind}.npz")
    assert_close(model(images), to_numpy(whole(images))[:, [3, 1, 0]], rtol=1e-6)
    down, up = (
        0.5 * np.random.default_rng(2).normal(size=w.shape)
        for w in model.get_layer("adapter").get_weights()
    )
    model.get_layer("adapter").set_weights([down, up])
    x = to_numpy(vit_keras.open(place / kind)(images)).astype("float64")
    x = x + np.maximum(x @ down, 0) @ up
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    kernel, bias = map(to_numpy, model.get_layer("head").weights)
    assert_close(model(images), x @ kernel + bias, rtol=1e-5)


def test_a_stopped_run_ends_with_the_same_bits_and_leaves_the_texts(place, tmp_path):
    report, folder = train_run(config(place)), place / "run"
    assert report["images"] == 12
    killed = copy_as_killed(folder, tmp_path / "killed", 2)
    assert train_run(config(place, killed)) == report
    assert not model_differences(folder, killed)
    model = vit_keras.open(folder / "model.keras")
    start = initial_model(complete_model(config(place)), NAMES)
    changed = {
        v.path.split("/")[0]
        for v, w in zip(model.weights, start.weights)
        if not np.array_equal(to_numpy(v), to_numpy(w))
    }
    assert changed == {"adapter"} and model.class_names == list(NAMES)


@pytest.mark.on("torch")
def test_a_run_is_evaluated_and_predicts(place, tmp_path, capsys):
    """tests/weights/test_text_embeddings.py exports such a model."""
    train_run(config(place))
    run, photos = str(place / "run"), str(place / "photos" / "test")
    commands.run(["evaluate", run, "--out", str(tmp_path)])
    assert (tmp_path / "report.json").is_file()
    commands.run(["predict", run, f"{photos}/cat", "--format", "csv"])
    assert "small owl" in capsys.readouterr().out


@pytest.mark.once
def test_wrong_configurations_are_refused(place):
    for fields, message in (
        ({"model.weights": "null"}, "`model.labels` and `model.weights`: the first needs"),
        ({"model.labels": "null"}, "the first needs the second. Received: 5 and None"),
        (
            {"lora.rank": 2, "cache_features": "false"},
            "`lora.rank` must be null with `model.labels`",
        ),
        ({"task": "numbers"}, "`model.labels` must be null with `task` numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            config(place, **fields).complete_task("classes")
    with pytest.raises(ValueError, match=r"all names of the classes. .*without .*bear"):
        initial_model(complete_model(config(place)), ("cat", "bear"))
