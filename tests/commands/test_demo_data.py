"""The demo data: what its folders and tables say of a picture is there, and the same every time."""

import csv

import numpy as np
import pytest
from PIL import Image

from vit_keras import commands
from vit_keras.commands import demo_data

pytestmark = pytest.mark.once
COUNTS = {
    "photos": [*("--count", "24"), *("--test_count", "12")],
    "tables": [*("--count", "40"), *("--test_count", "20")],
    "masks": [*("--count", "30"), *("--test_count", "10")],
    "places": ["--count", "300"],
    "photographs": [],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    for kind, counts in COUNTS.items():
        commands.run(["demo-data", kind, str(folder / kind), *counts])
    return folder


def test_a_table_says_what_the_regions_of_its_pictures_are(made):
    """Colors of the regions as a person sees them in the photographs."""
    with open(made / "tables" / "labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["split"] for row in rows] == ["train"] * 40 + ["test"] * 20
    redness = {"0": [], "1": []}
    for row in rows:
        pixels = np.asarray(Image.open(made / "tables" / row["path"]), "float32")
        assert pixels.shape == (64, 64, 3) and 0 <= float(row["sky_percent"]) <= 100
        assert "1" in [row[name] for name in demo_data.REGIONS]
        assert (float(row["sky_percent"]) >= 10) == (row["sky"] == "1")
        redness[row["flower"]].append((pixels[..., 0] - pixels[..., 2]).mean())
    assert np.mean(redness["1"]) > np.mean(redness["0"]) + 20


def test_a_seed_gives_the_same_pictures_and_another_seed_others(made, tmp_path):
    files = [sorted(p.read_bytes() for p in (made / "tables").rglob("*.*"))]
    for seed in ("0", "1"):
        words = ["tables", str(tmp_path / seed), *COUNTS["tables"], "--seed", seed]
        commands.run(["demo-data", *words])
        files.append(sorted(p.read_bytes() for p in (tmp_path / seed).rglob("*.*")))
    assert files[0] == files[1] and not set(files[0]) & set(files[2])
