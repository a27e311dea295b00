"""A run that starts from a hub's model keeps its commit, whatever is uploaded meanwhile."""

import dataclasses

import numpy as np
import pytest

import vit_keras
from tests.helpers import randomize, weights_by_path
from tests.weights.hub_server import COMMIT
from vit_keras import commands, runs, weights
from vit_keras.config import Config, DistillConfig, ModelConfig
from vit_keras.experiments.starting_point import pin_weights
from vit_keras.models import VisionTransformer
from vit_keras.support.files import without_commit

pytestmark = pytest.mark.on("torch")

ADDRESS, LATER = "hf://ann/pets", "f" * 40
RECIPE = ("--dataset", "digits", "--total_steps", "0", "--kernels", "default")


def upload(server, folder, seed, commit):
    """Puts another model on the hub, at another commit; returns it."""
    model = randomize(VisionTransformer(16, 8, 12, 1, 2, 16, 3), np.random.default_rng(seed))
    weights.save(model, folder / str(seed), format="huggingface")
    files = {file.name: file.read_bytes() for file in (folder / str(seed)).iterdir()}
    server.upload(files, commit)
    return model


@pytest.fixture
def server(serve_hub, tmp_path):
    return serve_hub({})


def blocks(model):
    return {p: v for p, v in weights_by_path(model).items() if p.startswith("encoderblock_0")}


def train(folder, *options):
    """Writes the model that a run of no updates starts from; returns the blocks and the address."""
    commands.run(["train", *RECIPE, "--model.weights", ADDRESS, *options])
    (model,) = folder.rglob("model.keras")
    recorded = runs.recorded_config(model.parent).model.weights
    return blocks(vit_keras.open(model)), recorded


@pytest.mark.parametrize("named", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_run_goes_on_from_the_commit_that_it_began_with(server, tmp_path, monkeypatch, named):
    monkeypatch.chdir(tmp_path)
    options = ["--workdir", "runs/mine"] if named else []
    first = blocks(upload(server, tmp_path, 1, COMMIT))
    folder = tmp_path / "runs"
    np.testing.assert_equal(train(folder, *options), (first, f"{ADDRESS}@{COMMIT}"))

    second = blocks(upload(server, tmp_path, 2, LATER))
    (model,) = folder.rglob("model.keras")
    model.unlink()  # as of a run that was stopped before
    np.testing.assert_equal(train(folder, *options), (first, f"{ADDRESS}@{COMMIT}"))
    other = tmp_path / "other"
    np.testing.assert_equal(train(other, "--workdir", str(other)), (second, f"{ADDRESS}@{LATER}"))
    with pytest.raises(ValueError, match=f"model.weights: '{ADDRESS}@{COMMIT}' there, '{ADDRESS}@"):
        train(folder, *options, "--model.weights", f"{ADDRESS}@{LATER}")


def test_a_teacher_is_pinned_and_a_branch_is_not(server, tmp_path):
    upload(server, tmp_path, 1, COMMIT)
    config = Config(
        dataset="digits",
        workdir=str(tmp_path / "run"),
        model=ModelConfig(weights=f"{ADDRESS}@v1.0"),
        distill=DistillConfig(teacher=f"{ADDRESS}/model.safetensors"),
    )
    pinned = pin_weights(config)
    assert pinned.distill.teacher == f"{ADDRESS}@{COMMIT}/model.safetensors"
    assert pinned.model.weights == config.model.weights
    assert pin_weights(pinned) == pinned
    later = [dataclasses.replace(c, workdir=None) for c in (config, pinned)]
    assert len({*map(runs.default_workdir, later)}) == 1  # one command, one folder


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (f"hf://a/b@{COMMIT}", "hf://a/b"),
        (f"hf://a/b@{COMMIT}/c/d.npz", "hf://a/b/c/d.npz"),
        (f"timm/b@{COMMIT}", "timm/b"),
        ("kaggle://a/b/keras/c/3", "kaggle://a/b/keras/c"),
        *[
            (path, path)
            for path in ("hf://a/b@v1.0/c", "hf://a/b", "runs/b", "kaggle://a/b/keras/c")
        ],
        (f"runs/b@{COMMIT}", f"runs/b@{COMMIT}"),
    ],
)
def test_an_address_without_its_commit(address, expected):
    assert without_commit(address) == expected
