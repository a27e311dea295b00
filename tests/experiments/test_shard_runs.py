"""A run on shards ends with the weights of a run on the folder, stopped and resumed or not."""

import json

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.training.kill import model_differences
from tests.training.processes import start_processes
from tests.training.small import copy_as_killed
from vit_keras.commands import run

pytestmark = pytest.mark.on("torch")

NIGHTLY = pytest.mark.nightly
KINDS = ("tar", "parquet", "tfrecord", "array_record")
CASES = [
    ("tar", 4),
    *(pytest.param(kind, 50, marks=NIGHTLY) for kind in KINDS),
]
FIELDS = (
    *("--model.image_size", "8", "--model.patch_size", "4", "--model.channels", "1"),
    *("--model.hidden_size", "16", "--model.num_layers", "1", "--model.num_heads", "2"),
    *("--model.mlp_dim", "32", "--model.dropout_rate", "0.1", "--batch", "16"),
    *("--batch_eval", "32", "--kernels", "default", "--keep_checkpoints", "9"),
    *("--augment.crop", "inception", "--augment.flip", "true", "--augment.mixup_alpha", "0.2"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ninety digits as pictures."""
    root = tmp_path_factory.mktemp("folder")
    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype("uint8")
    for i in range(90):
        path = root / str(digits.target[i]) / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(images[i]).save(path)
    return root


def train_arguments(steps):
    every = ["--checkpoint_every", str(steps // 2), "--eval_every", str(steps)]
    return [*FIELDS, "--total_steps", str(steps), *every]


@pytest.mark.parametrize(("kind", "steps"), CASES)
def test_a_run_on_shards_gives_the_weights_of_the_folder(folder, tmp_path, kind, steps):
    shards = tmp_path / "packed"
    run(["pack", f"folder:{folder}", "--out", str(shards), "--format", kind, "--shard_mb", "1"])
    train = ["train", *train_arguments(steps)]
    for name, dataset in (("folder", f"folder:{folder}"), ("shards", f"shards:{shards}")):
        run([*train, "--dataset", dataset, "--workdir", str(tmp_path / name)])
    assert not model_differences(tmp_path / "folder", tmp_path / "shards")
    copy_as_killed(tmp_path / "shards", tmp_path / "resumed", steps // 2)
    run([*train, "--dataset", f"shards:{shards}", "--workdir", str(tmp_path / "resumed")])
    assert not model_differences(tmp_path / "folder", tmp_path / "resumed")


@pytest.mark.slow
@NIGHTLY
def test_two_processes_give_the_weights_of_the_folder(folder, tmp_path):
    """Each reads its rows of every batch; all formats, and each resumed in the middle."""
    datasets = {"folder": f"folder:{folder}"}
    for kind in KINDS:
        shards = str(tmp_path / f"packed_{kind}")
        run(["pack", datasets["folder"], "--out", shards, "--format", kind, "--shard_mb", "1"])
        datasets[kind] = f"shards:{shards}"
    train_in_pair(tmp_path, datasets)
    for kind in KINDS:
        copy_as_killed(tmp_path / kind, tmp_path / f"resumed_{kind}", 25)
    train_in_pair(tmp_path, {f"resumed_{kind}": datasets[kind] for kind in KINDS})
    expected = last_checkpoint(tmp_path / "folder")
    for name in (*KINDS, *(f"resumed_{kind}" for kind in KINDS)):
        assert last_checkpoint(tmp_path / name) == expected, name


def last_checkpoint(folder):
    """The bits of the model and of the optimizer."""
    with np.load(folder / "checkpoints" / "step_000000050" / "state.npz") as state:
        return {name: state[name].tobytes() for name in state.files}


def train_in_pair(folder, datasets):
    (folder / "datasets.json").write_text(json.dumps(datasets))
    arguments = train_arguments(50)
    codes, outputs = start_processes("several_datasets", folder, "multi_worker", arguments)
    assert codes == [0, 0], outputs
