"""`vit-keras check`: counts known by construction, faults by name, exit codes, and its files."""

import json
import pathlib
import shutil

import numpy as np
import pyarrow
import pyarrow.csv
import pytest
from PIL import Image

from vit_keras import commands, experiments

pytestmark = pytest.mark.once
MODEL = (
    *("--model.variant", "null", "--model.image_size", "16", "--model.patch_size", "8"),
    *("--model.hidden_size", "12", "--model.num_layers", "1", "--model.num_heads", "2"),
    *("--model.mlp_dim", "16"),
)
COUNTS = {"ant": 30, "bee": 12, "cat": 10}


def write(path, rng):
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = rng.integers(0, 256, (5, 7, 3), dtype="uint8")
    Image.fromarray(coarse).resize((64, 48), Image.Resampling.BICUBIC).save(path)


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("clean"), np.random.default_rng(0)
    for name, count in COUNTS.items():
        for i in range(count):
            write(root / name / f"{i:02}.png", rng)
    return root


@pytest.fixture
def root(clean, tmp_path):
    """A copy of the clean folder, to spoil."""
    return shutil.copytree(clean, tmp_path / "photos")


def check(*arguments):
    return commands.main(["check", *map(str, arguments)])


@pytest.fixture
def report(capsys):
    """Checks a data set: `(arguments, exit code) -> the report`."""

    def report(*arguments, code=0):
        assert check(*arguments, "--format", "json") == code
        return json.loads(capsys.readouterr().out)

    return report


def test_a_clean_folder_is_counted(clean, report, capsys):
    found = report(clean, "--data.test_percent", "20")
    train = {"ant": 24, "bee": 10, "cat": 8}
    expected = {
        "problems": [],
        "pictures": {"train": train, "test": {"ant": 6, "bee": 2, "cat": 2}},
        "imbalance": 3.0,
        "width": {"min": 64, "median": 64, "max": 64},
        "height": {"min": 48, "median": 48, "max": 48},
        "kinds": {"RGB": 52},
        "duplicates": [],
        "unreadable": {},
    }
    assert {name: found[name] for name in expected} == expected
    assert found["aspect"]["median"] == 1.333
    assert found["notes"][0].startswith("no held-out split: 20% of each class, 10 pictures, are")
    imbalance, few = found["warnings"]
    assert imbalance.startswith(
        "imbalance: 'ant' has 3.0 times as many pictures as 'cat' (24 and 8). Add pictures of the "
    )
    assert few == "classes with fewer than 10 training pictures: cat. Add pictures"
    assert check(f"folder:{clean}", "--data.test_percent", "20") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:3] == [["train", "test"], ["ant", "24", "6"]]
    assert rows[5] == ["3", "classes", "42", "10"]


def test_files_that_are_not_read_are_named(root, rng, report):
    write(root / "loose.png", rng)
    for name in ("notes.txt", "README", "photo.CR2", ".hidden"):
        (root / "bee" / name).write_text("no picture")
    found = report(root, "--quick")
    warnings = "\n".join(found["warnings"])
    assert found["not_pictures"] == {".txt": 1, "no suffix": 1}
    assert found["unsupported"] == [str(root / "bee" / "photo.CR2")]
    assert found["in_no_class"] == [str(root / "loose.png")]
    assert "photo.CR2. Convert them to JPEG or PNG" in warnings
    assert "loose.png. Move them into one" in warnings
    assert "kinds" not in found  # no picture is opened


def test_a_folder_without_classes_is_judged_as_its_run_opens_it(clean, tmp_path, report):
    flat, held_out = tmp_path / "flat", tmp_path / "held_out"
    for path in (*clean.glob("ant/*.png"), *clean.glob("bee/*.png")):
        flat.mkdir(exist_ok=True)
        shutil.copy(path, flat / f"{path.parent.name}_{path.name}")
    found = report(flat, "--data.label_pattern", "^([a-z]+)_", "--data.test_percent", "50")
    assert found["pictures"] == {of: {"ant": 15, "bee": 6} for of in ("train", "test")}
    found = report(flat, "--pretext.objective", "mae")
    assert found["images"] == {"train": 38, "test": 4} and found["kinds"] == {"RGB": 42}
    assert "pictures" not in found and found["duplicates"] == found["warnings"] == []
    assert "none in any folder, and 42 outside" in report(flat, code=1)["problems"][0]
    shutil.copytree(clean, held_out / "val")
    split = ("--data.train_split", "val[:80%]", "--data.test_split", "val[80%:]")
    found = report(held_out, *split, "--quick")
    assert sum(map(sum, (of.values() for of in found["pictures"].values()))) == 52


def test_an_unreadable_picture_is_a_problem_unless_it_is_skipped(root, report, capsys):
    bad = root / "ant" / "07.png"
    bad.write_bytes(bad.read_bytes()[:100])
    found = report(root, code=1)
    (problem,) = found["problems"]
    assert problem.startswith("1 unreadable; each stops a run. Repair or remove them, or set da")
    assert list(found["unreadable"]) == [str(bad)]
    assert report(root, "--data.on_corrupt", "skip")["problems"] == []
    assert check(root) == 1
    out, error = capsys.readouterr()
    assert f"  '{bad}' cannot be read as an image" in out
    assert error.endswith(f"{root}' cannot be trained on: it has a problem; see above\n")


def test_copies_are_named_by_what_they_spoil(root, report):
    for name in ("ant", "bee"):
        shutil.copytree(root / name, root / "train" / name)
    (root / "valid" / "ant").mkdir(parents=True)
    first = root / "train" / "ant" / "00.png"
    with Image.open(first) as picture:
        picture.resize((128, 96)).save(root / "valid" / "ant" / "enlarged.png")
    shutil.copy(first.with_stem("01"), first.with_stem("again"))
    shutil.copy(first.with_stem("02"), root / "train" / "bee" / "label.png")
    shutil.copytree(root / "cat", root / "valid" / "bee")
    found = report(root)
    stems = lambda pair: {pathlib.Path(pair[end]).stem for end in ("first", "second")}
    pairs = {"-".join(sorted(stems(pair))): pair["exact"] for pair in found["duplicates"]}
    assert pairs == {"00-enlarged": False, "01-again": True, "02-label": True}
    texts = "\n".join(found["warnings"])
    assert "look alike, in two splits, so the measured accuracy is too high: keep one" in texts
    assert "look alike, with two labels" in texts and "look alike, twice in a class" in texts
    assert "folders that are not splits are left out: ant, bee, cat. The splits are train" in texts


def test_the_report_and_the_sheet_are_written(clean, tmp_path, capsys):
    sheet, written = tmp_path / "new" / "sheet.png", tmp_path / "made" / "report.json"
    fields = [*MODEL, "--augment.crop", "inception", "--augment.flip", "true", "--seed", "3"]
    assert check(clean, *fields, "--out", sheet, "--out", written) == 0
    assert capsys.readouterr().out.endswith(f"written: {sheet}\n")
    assert json.loads(written.read_text())["kinds"] == {"RGB": 52}
    check_command = commands.command("check")
    config = commands.parse(check_command, [str(clean), *fields], "vit-keras check").run
    images, *_ = experiments.first_training_images(config)
    assert len(images) == 36
    drawn = {*map(tuple, np.asarray(Image.open(sheet).convert("RGB")).reshape(-1, 3).tolist())}
    colors = [*map(tuple, images.reshape(-1, 3).tolist())]
    assert np.mean([color in drawn for color in colors]) > 0.9


ROWS = 24


@pytest.fixture
def check_table(tmp_path, capsys):
    """Checks a table of these columns: `columns -> the report`."""
    paths = [f"{i}.png" for i in range(ROWS)]
    for path in paths:
        Image.new("L", (8, 8)).save(tmp_path / path)
    splits = ["train"] * 16 + ["test"] * 8

    def check_table(columns):
        rows = {"path": paths, **columns, "split": splits}
        pyarrow.csv.write_csv(pyarrow.table(rows), tmp_path / "rows.csv")
        command = ["check", str(tmp_path / "rows.csv"), "--quick", "--format", "json"]
        names = ",".join(columns)
        assert commands.main([*command, "--data.label_columns", names]) == 0
        return json.loads(capsys.readouterr().out)

    return check_table


def test_labels_are_counted(check_table):
    sun, sea = [1, 0] * 12, [1, 1, 0, 0] * 6
    sea[:9] = [None] * 9
    report = check_table({"sun": sun, "sea": sea})
    assert report["kind"] == "labels" and report["images"] == {"train": 16, "test": 8}
    assert report["pictures"] == {"train": {"sun": 8, "sea": 3}, "test": {"sun": 4, "sea": 4}}
    unknown = "labels that are unknown for more than half of the training pictures: sea. They "
    assert f"{unknown}are learned from the other pictures alone" in report["warnings"]


def test_numbers_are_described(check_table):
    age = [20.5 + i for i in range(ROWS)]
    report = check_table({"age": age, "dose": [0.25] * 16 + [0.5] * 8})
    assert report["kind"] == "numbers" and report["classes"] == ["age", "dose"]
    row = report["numbers"]["train"]["age"]
    assert row == {"known": 16, "min": 20.5, "median": 28.0, "max": 35.5}
    assert report["warnings"] == [
        f"numbers that are constant in {split!r} and so have no R²: dose. Leave them out"
        for split in ("train", "test")
    ]
