"""The demo data: what its folders and tables say of a picture is there, and the same every time."""

import csv

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

from vit_keras import commands, config, data
from vit_keras.data import demo

pytestmark = pytest.mark.once
COUNTS = {
    "photos": [*("--count", "24"), *("--test_count", "12")],
    "tables": [*("--count", "40"), *("--test_count", "20")],
    "masks": [*("--count", "30"), *("--test_count", "10")],
    "boxes": [*("--count", "30"), *("--test_count", "10")],
    "places": ["--count", "300"],
    "photographs": [],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    for kind, counts in COUNTS.items():
        commands.run(["demo-data", kind, str(folder / kind), *counts])
    return folder


def rows_of(folder):
    with open(folder / "tables" / "labels.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_says_what_the_regions_of_its_pictures_are(made):
    """Colors of the regions as a person sees them in the photographs."""
    rows = rows_of(made)
    assert [row["split"] for row in rows] == ["train"] * 40 + ["test"] * 20
    with_flower, without = [], []
    for row in rows:
        pixels = np.asarray(Image.open(made / "tables" / row["path"]), "float32")
        assert pixels.shape == (64, 64, 3)
        present = [name for name in demo.REGIONS if row[name] == "1"]
        assert present and 0 <= float(row["sky_percent"]) <= 100
        assert (float(row["sky_percent"]) >= 10) == ("sky" in present)
        redness = (pixels[..., 0] - pixels[..., 2]).mean()
        (with_flower if "flower" in present else without).append(redness)
    assert np.mean(with_flower) > np.mean(without) + 20


def test_no_place_is_in_both_splits_and_no_pixel_in_two_places(made):
    places = {split: set() for split in demo.SPLITS}
    for row in rows_of(made):
        places[row["split"]].add(row["place"])
    assert not places["train"] & places["test"]
    covered = np.zeros((2, 427, 640), int)
    for number, name in enumerate(demo.PHOTOGRAPHS):
        assert load_sample_image(f"{name}.jpg").shape == (427, 640, 3)
        for split in demo.SPLITS:
            for _, row, column in [tile for tile in demo.tiles(split) if tile[0] == name]:
                y, x = row * demo.HEIGHT, column * demo.WIDTH
                covered[number, y : y + demo.HEIGHT, x : x + demo.WIDTH] += 1
    assert (covered == 1).all()


def test_every_kind_is_a_data_set_that_the_loaders_take(made):
    def load(name, task="auto", **fields):
        return data.load(f"{name}", 3, config.DataConfig(**fields), task)

    photos = load(f"folder:{made / 'photos'}")
    assert photos.class_names == demo.REGIONS
    assert {name: len(split) for name, split in photos.splits.items()} == {"train": 24, "test": 12}
    masks = load(f"folder:{made / 'masks'}", "masks")
    assert masks.class_names == demo.REGIONS and len(masks.splits["train"]) == 30
    labels = load(f"table:{made / 'tables/labels.csv'}", label_columns=",".join(demo.REGIONS))
    assert labels.kind == "labels" and len(labels.splits["test"]) == 20
    sky = load(f"table:{made / 'tables/labels.csv'}", label_columns="sky_percent")
    assert sky.kind == "numbers"
    places = load(f"folder:{made / 'places'}")
    assert set(places.class_names) <= {f"{a}-{b}-{c}" for a, b, c in demo.tiles("train")}
    pictures = {path.name for path in (made / "photographs").iterdir()}
    assert pictures == {"china.jpg", "flower.jpg"}


def test_a_seed_gives_the_same_pictures_and_another_seed_others(made, tmp_path):
    for name, seed in (("same", "0"), ("other", "1")):
        line = ["demo-data", "tables", str(tmp_path / name), *COUNTS["tables"], "--seed", seed]
        commands.run(line)
    files = {name: sorted(p.read_bytes() for p in (tmp_path / name).rglob("*.*")) for name in
             ("same", "other")}  # fmt: skip
    assert files["same"] == sorted(p.read_bytes() for p in (made / "tables").rglob("*.*"))
    assert not set(files["same"]) & set(files["other"])
