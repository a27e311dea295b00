"""The way of a user who has the wheel and pictures of their own, and no checkout."""

import csv

import numpy as np
import pytest
from PIL import Image

from tests.helpers import BACKENDS
from tests.packaging import environment

pytestmark = [pytest.mark.once, pytest.mark.slow]

COLORS = {"blue": 2, "green": 1, "red": 0}  # the class, and its bright channel
COMMANDS = (
    "train --config digits --dataset folder:photos --workdir run --total_steps 12 --batch 12 "
    "--model.image_size 16 --model.hidden_size 12 --model.num_layers 1 --model.num_heads 2 "
    "--model.mlp_dim 16 --optimizer.learning_rate 0.01 --optimizer.warmup_steps 2",
    "evaluate run",
    "predict run new --out keras.csv",
    "export run --format litert --precision int8",
    "predict run/export/model_int8.tflite new --out exported.csv",
)


def write_pictures(folder, rng, count):
    folder.mkdir(parents=True)
    for number in range(count):
        pixels = rng.integers(0, 120, (20, 24, 3), dtype="uint8")
        pixels[..., COLORS.get(folder.name, number % 3)] += 120
        Image.fromarray(pixels).save(folder / f"{number}.png")


@pytest.mark.parametrize("backend", BACKENDS)
def test_pictures_are_learned_and_the_exported_file_is_used(wheel, tmp_path, backend):
    python = environment.make(wheel, ["train", "export", backend], tmp_path / "environment")
    home, rng = tmp_path / "home", np.random.default_rng(0)
    for name in COLORS:
        write_pictures(home / "photos" / name, rng, 8)
    write_pictures(home / "new", rng, 6)

    for line in COMMANDS:
        environment.run(python, "-m", "vit_keras", *line.split(), backend=backend, cwd=home)

    assert (home / "run" / "report.json").is_file()
    rows, exported = (
        list(csv.DictReader((home / name).open())) for name in ("keras.csv", "exported.csv")
    )
    assert len(rows) == len(exported) == 6
    for row, other in zip(rows, exported):
        assert row["path"] == other["path"] and {row[f"class_{i}"] for i in "123"} == set(COLORS)
        shares, others = (
            {line[f"class_{i}"]: float(line[f"probability_{i}"]) for i in "123"}
            for line in (row, other)
        )
        assert shares == pytest.approx(others, abs=0.02)
