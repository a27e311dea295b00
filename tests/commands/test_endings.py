"""How a command ends when a picture cannot be read, in a process of its own and in this one."""

import pytest

from tests.helpers import run_script, write_picture

SIZES = {"image_size": 8, "patch_size": 4, "hidden_size": 8, "num_layers": 1, "num_heads": 2}
TRAINING = [
    *(f"--model.{name}={value}" for name, value in SIZES.items()),
    *("--model.mlp_dim=8", "--model.channels=3", "--batch=16", "--eval_every=2"),
    *("--total_steps=60", "--checkpoint_every=1", "--augment.crop=inception"),
]


@pytest.mark.nightly_on("tensorflow", "torch")
def test_an_unreadable_picture_ends_the_process_in_one_line(tmp_path, rng):
    """While other threads read pictures, which must not keep the process alive."""
    pictures = tmp_path / "pictures"
    for i in range(150):
        write_picture(pictures / "ab"[i % 2] / f"{i}.jpg", rng, (64, 64))
    torn = pictures / "a" / "70.jpg"
    torn.write_bytes(torn.read_bytes()[:400])  # in the middle of its tables
    arguments = ["--dataset", f"folder:{pictures}", "--workdir", tmp_path / "run", *TRAINING]
    inherited = {"TF_CPP_MIN_LOG_LEVEL": "1"}  # as from a process that has imported JAX
    command = ("-m", "vit_keras", "train", *arguments)
    done = run_script(*command, check=False, timeout=100, **inherited)
    assert done.returncode == 1, done.stderr[-2000:]
    lines = done.stderr.splitlines()
    assert lines[-1].startswith(f"vit-keras train: error: '{pictures}/a/70.jpg' cannot be read")
    assert "Traceback" not in done.stderr and sum("error" in line.lower() for line in lines) == 1
