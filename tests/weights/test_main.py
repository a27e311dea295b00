"""The command that converts checkpoints."""

import pytest

from tests.helpers import GOLDEN, run_script
from tests.weights.builds import assert_equal_weights, build
from vit_keras import weights
from vit_keras.weights.__main__ import main


def test_the_command_converts_both_ways(rng, tmp_path):
    source = build(rng)
    weights.save(source, tmp_path / "own.keras")
    done = run_script(
        "-m", "vit_keras.weights", tmp_path / "own.keras", tmp_path / "hf", "--to", "huggingface"
    )
    assert f"{source.count_params():,} parameters" in done.stdout
    main([str(tmp_path / "hf"), str(tmp_path / "again.keras")])
    assert_equal_weights(source, weights.open_model(tmp_path / "again.keras"))


def test_what_a_file_does_not_say_is_an_option(tmp_path):
    path = str(GOLDEN / "timm_avg_nonsquare.safetensors")
    out = str(tmp_path / "a.safetensors")
    main([path, out, "--to", "timm", "--num_heads", "4", "--image-size", "[16, 40]"])
    with open(path, "rb") as before, open(out, "rb") as after:
        assert before.read()[-1000:] == after.read()[-1000:]


def test_faults_are_told_in_one_line(tmp_path, capsys):
    path = str(GOLDEN / "timm_token.safetensors")
    with pytest.raises(SystemExit) as stop:
        main([path, str(tmp_path / "a.npz"), "--to", "google"])
    assert stop.value.code == 1
    assert "do not say `num_heads`" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([path, str(tmp_path / "a.npz"), "num_heads"])
    assert "overrides are pairs of --name value. Received: num_heads" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([path, str(tmp_path / "a.npz"), "--to", "caffe"])
    assert "invalid choice: 'caffe'" in capsys.readouterr().err
