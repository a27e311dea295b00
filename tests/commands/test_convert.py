"""The command that converts checkpoints."""

import pytest

import vit_keras
from tests.helpers import GOLDEN, run_script
from tests.weights.builds import assert_equal_weights, build
from vit_keras import weights
from vit_keras.commands import run

pytestmark = pytest.mark.on("torch")


def test_the_command_converts_both_ways(rng, tmp_path):
    source = build(rng)
    weights.save(source, tmp_path / "own.keras")
    done = run_script(
        "-m", "vit_keras", "convert", tmp_path / "own.keras", tmp_path / "hf", "--to", "huggingface"
    )
    assert f"{source.count_params():,} parameters" in done.stdout
    run(["convert", str(tmp_path / "hf"), str(tmp_path / "again.keras")])
    assert_equal_weights(source, vit_keras.open(tmp_path / "again.keras"))


def test_what_a_file_does_not_say_is_an_option(tmp_path):
    path = str(GOLDEN / "timm_avg_nonsquare.safetensors")
    out = str(tmp_path / "a.safetensors")
    run(["convert", path, out, "--to", "timm", "--num_heads", "4", "--image-size", "[16, 40]"])
    with open(path, "rb") as before, open(out, "rb") as after:
        assert before.read()[-1000:] == after.read()[-1000:]
