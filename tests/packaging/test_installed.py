"""Pages, as a user follows them who has the wheel and no checkout, in an empty folder."""

import re

import numpy as np
import pyarrow.csv
import pytest
from PIL import Image

from tests.helpers import BACKENDS, ROOT
from tests.packaging import environment

pytestmark = [pytest.mark.once, pytest.mark.slow]

PAGE = (ROOT / "docs" / "your_own_pictures.md").read_text()
BLOCKS = re.findall(r"```console\n\$ vit-keras (.*?)\n(.*?)```", PAGE, re.DOTALL)
NEEDED = ("demo-data", "train", "export", "predict run/export")  # the others only look
CLASSES = ("flower", "leaves", "sky", "temple", "trees", "water")
# The commands before the first training, of which the last one would take minutes.
((BEGIN, PLACES),) = re.findall(
    r"^```shell\nvit-keras (demo-data places.*)\nvit-keras (train .*)\n```$", PAGE, re.MULTILINE
)
FEWER = {  # pages that are followed with fewer updates, and what their commands must have written
    "labels.md": ("runs/things/report.json", "runs/sky/report.json"),
    "segmentation.md": ("runs/things/report.json", "predicted/masks/00000.png"),
}


def masked(text):
    """The lines of a command's output, without what depends on the weights and the machine."""
    lines = [re.sub(r"(?<= )-(?=\s|$)", "0%", line) for line in text.splitlines()]  # no precision
    lines = [re.sub(r", layers in float32: \d+", "", line) for line in lines]
    lines = [re.sub(r"[-+]?[\d.,:]*\d(e[-+]\d+)?", "#", line).split() for line in lines]
    return [" ".join(line) for line in lines if line and line[0] not in ("update", "written:")]


FIRST = "torch"  # which starts soonest
OTHERS = [pytest.param(b, marks=pytest.mark.nightly) for b in BACKENDS if b != FIRST]


@pytest.mark.parametrize("backend", [FIRST, *OTHERS])
def test_the_page_does_what_it_says(wheel, tmp_path, backend):
    python = environment.make(wheel, ["train", "export", backend], tmp_path / "environment")
    home = tmp_path / "home"
    home.mkdir()
    shown = {line: text for line, text in BLOCKS if backend == "jax" or line.startswith(NEEDED)}
    assert "--model." not in " ".join(shown).replace("--model.weights", "")
    changes = {"train": " --epochs 1"}
    if backend == FIRST:  # the others convert all files
        changes["export"] = " --format litert --precision int8"
    lines = [line + changes.get(line.split()[0], "") for line in shown]
    before = [f"{BEGIN} --count 600", f"{PLACES} --epochs 1"]
    ended = environment.run_commands(python, [*before, *lines], backend=backend, cwd=home)
    for line, (code, printed, error) in zip([*before, *shown], ended, strict=True):
        assert code == 0, f"{line}: {error}"
        told, rows = masked(printed), masked(shown.get(line, printed))
        assert {*told} <= {*rows} and (told == rows or backend == FIRST)
    table = pyarrow.csv.read_csv(home / "phone.csv").to_pylist()
    assert {row["class_1"] for row in table} <= set(CLASSES) and len(table) == 20
    if backend == "jax":
        assert (home / "page.html").is_file()
        for picture in set(re.findall(r"\(your_own_pictures/(\w+\.png)\)", PAGE)):
            (path,) = [p for p in (home / picture, home / "run" / picture) if p.is_file()]
            assert np.asarray(Image.open(path).convert("L")).std() > 5, picture  # not blank


@pytest.mark.nightly
@pytest.mark.parametrize("page", FEWER)
def test_a_page_that_begins_with_demo_data_runs_in_an_empty_folder(wheel, tmp_path, page):
    python = environment.make(wheel, ["train", "jax"], tmp_path / "environment")
    (tmp_path / "home").mkdir()
    text = (ROOT / "docs" / page).read_text()
    (block,) = re.findall(r"^```shell\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = block.replace("\\\n", " ").splitlines()
    lines = [line.removeprefix("vit-keras ") for line in lines]
    fewer = lambda line: " --total_steps 4" if "--total_steps" in line else " --epochs 1"
    lines = [line + fewer(line) if line.startswith("train") else line for line in lines]
    ended = environment.run_commands(python, lines, backend="jax", cwd=tmp_path / "home")
    assert not [(line, end) for line, end in zip(lines, ended) if end[0]]
    assert all((tmp_path / "home" / name).is_file() for name in FEWER[page])
