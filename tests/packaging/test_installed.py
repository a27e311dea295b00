"""The page on own pictures, as a user follows it who has the wheel and no checkout."""

import re
import subprocess
import sys

import numpy as np
import pyarrow.csv
import pytest
from PIL import Image

from tests.helpers import BACKENDS, ROOT, randomise
from tests.packaging import environment
from vit_keras.models import VisionTransformer

pytestmark = [pytest.mark.once, pytest.mark.slow]

PAGE = (ROOT / "docs" / "your_own_pictures.md").read_text()
BLOCKS = re.findall(r"```console\n\$ vit-keras (.*?)\n(.*?)```", PAGE, re.DOTALL)
NEEDED = ("train", "export", "predict run/export")  # on the way to a phone; the others look
SHAPES = ("circle", "square", "star", "triangle")
# The model of other shapes that the page starts from, with random weights.
MODEL = {"image_size": 48, "patch_size": 8, "hidden_size": 16, "num_layers": 1, "num_heads": 2}


def masked(text):
    """The lines of a command's output, without what depends on the weights and the machine."""
    lines = [re.sub(r"(?<= )-(?=\s|$)", "0%", line) for line in text.splitlines()]  # no precision
    lines = [re.sub(r"[-+]?[\d.,:]*\d(e-\d+)?", "#", line).split() for line in lines]
    return [" ".join(line) for line in lines if line and line[0] not in ("update", "written:")]


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """What the page begins with: pictures, and a model of other shapes."""
    folder = tmp_path_factory.mktemp("begun")
    ((script, arguments),) = re.findall(
        r"^    python (examples/\S+) (photos.*)$", PAGE, re.MULTILINE
    )
    command = [sys.executable, ROOT / script, *arguments.split()]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    model = VisionTransformer(**MODEL, mlp_dim=16, num_classes=3)
    randomise(model, np.random.default_rng(0), scale=0.1).save(folder / "shapes.keras")
    return folder


OTHERS = [pytest.param(name, marks=pytest.mark.nightly) for name in BACKENDS[1:]]


@pytest.mark.parametrize("backend", [BACKENDS[0], *OTHERS])
def test_the_page_does_what_it_says(wheel, begun, tmp_path, backend):
    python = environment.make(wheel, ["train", "export", backend], tmp_path / "environment")
    home = tmp_path / "home"
    home.mkdir()
    for name in ("photos", "shapes.keras"):
        (home / name).symlink_to(begun / name)
    shown = {line: text for line, text in BLOCKS if backend == "jax" or line.startswith(NEEDED)}
    (train,) = (line for line in shown if line.startswith("train"))
    assert "--model." not in " ".join(shown).replace("--model.weights", "")
    words = [*train.split(), "--epochs", "1"]
    done = environment.run(python, "-m", "vit_keras", *words, backend=backend, cwd=home)
    assert masked(done.stdout) == masked(shown.pop(train))
    answers = environment.run_commands(python, shown, backend=backend, cwd=home)
    for (line, text), (code, printed, error) in zip(shown.items(), answers):
        assert code == 0, f"{line}: {error}"
        assert masked(printed) == masked(text)
    table = pyarrow.csv.read_csv(home / "phone.csv").to_pylist()
    assert {row["class_1"] for row in table} <= set(SHAPES) and len(table) == 100
    if backend == "jax":
        check_pictures(home)


def check_pictures(home):
    """The pictures of the page are made by its commands, but for a photograph of a page."""
    for picture in set(re.findall(r"\(your_own_pictures/(\w+\.png)\)", PAGE)) - {"page.png"}:
        (path,) = [p for p in (home / picture, home / "run" / picture) if p.is_file()]
        assert np.asarray(Image.open(path).convert("L")).std() > 5, picture  # not blank
    assert (home / "page.html").is_file()
