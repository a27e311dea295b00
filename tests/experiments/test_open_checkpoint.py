"""The models in checkpoints of runs. tests/training/test_kill.py opens one with an average."""

import shutil

import pytest

import vit_keras
from tests.weights.builds import assert_equal_weights
from vit_keras.commands import run
from vit_keras.config import UsageError

pytestmark = pytest.mark.on("torch")

STEP = "checkpoints/step_000000002"
RUN = [
    *("train", "--dataset", "digits", "--total_steps", "2", "--batch", "8", "--kernels", "default"),
    *("--model.image_size", "8", "--model.patch_size", "4", "--model.channels", "1"),
    *("--model.hidden_size", "8", "--model.num_layers", "1", "--model.num_heads", "2"),
    *("--model.mlp_dim", "8"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "digits"
    run([*RUN, "--workdir", str(folder)])
    return folder


def test_a_step_of_a_run_becomes_one_file(trained, tmp_path):
    run(["convert", str(trained / STEP), str(tmp_path / "out.keras")])
    files = trained / "model.keras", tmp_path / "out.keras"
    model, converted = map(vit_keras.open, files)
    assert_equal_weights(model, converted)
    assert converted.get_config() == model.get_config()  # with the names of the classes


def test_a_step_that_cannot_be_converted_is_refused(trained, tmp_path):
    step, command = tmp_path / "run" / STEP, ["convert", str(tmp_path / "run" / STEP), "out.keras"]
    shutil.copytree(trained / STEP, step)
    with pytest.raises(FileNotFoundError, match="without a config.yaml in .*run'. Give it inside"):
        run(command)
    shutil.copy(trained / "dataset.json", tmp_path / "run")
    text = (trained / "config.yaml").read_text()
    (tmp_path / "run" / "config.yaml").write_text(text)
    with pytest.raises(UsageError, match="have the sizes of their model.*Received: source=timm"):
        run([*command, "--source", "timm"])
    with open(step / "state.npz", "r+b") as file:
        file.seek(100)
        file.write(b"damage")
    with pytest.raises(ValueError, match=r"000000002' cannot be read \(the checksum of state.npz"):
        run(command)
    changed = text.replace("task: classes", "task: numbers").replace("loss: softmax", "loss: mse")
    (tmp_path / "run" / "config.yaml").write_text(changed)
    with pytest.raises(ValueError, match="a run with task=numbers lacks the mean of the labels"):
        run(command)
