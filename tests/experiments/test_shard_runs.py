"""A run on shards ends with the weights of a run on the folder, stopped and resumed or not."""

import shutil

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.training.kill import model_differences
from vit_keras.commands import run

pytestmark = pytest.mark.on("torch")

NIGHTLY = pytest.mark.nightly
CASES = [
    ("tar", 4),
    *(pytest.param(k, 50, marks=NIGHTLY) for k in ("tar", "parquet", "tfrecord", "array_record")),
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


@pytest.mark.parametrize(("kind", "steps"), CASES)
def test_a_run_on_shards_gives_the_weights_of_the_folder(folder, tmp_path, kind, steps):
    half, shards = steps // 2, tmp_path / "packed"
    run(["pack", f"folder:{folder}", "--out", str(shards), "--format", kind, "--shard_mb", "1"])
    train = ["train", *FIELDS, "--total_steps", str(steps), "--checkpoint_every", str(half)]
    train += ["--eval_every", str(steps)]
    for name, dataset in (("folder", f"folder:{folder}"), ("shards", f"shards:{shards}")):
        run([*train, "--dataset", dataset, "--workdir", str(tmp_path / name)])
    assert not model_differences(tmp_path / "folder", tmp_path / "shards")
    resumed = tmp_path / "resumed"
    shutil.copytree(tmp_path / "shards", resumed)  # as after a kill behind its first checkpoint
    shutil.rmtree(resumed / "checkpoints" / f"step_{steps:09d}")
    for name in ("model.keras", "report.json", "metrics.json", "metrics.csv"):
        (resumed / name).unlink()
    run([*train, "--dataset", f"shards:{shards}", "--workdir", str(resumed)])
    assert not model_differences(tmp_path / "folder", resumed)
