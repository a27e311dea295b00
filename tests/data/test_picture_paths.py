"""Files, folders and patterns become pictures, whatever lies among them."""

import os
import pathlib

import numpy as np
import pytest

from tests.data.gray_shards import write
from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.sources import fingerprint
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once
FILES = (
    *("b.jpg", "a.PNG", "deep/er/c.webp", "deep/d.gif", "notes.txt", ".hidden.jpg"),
    *(".cache/e.jpg", "empty/readme.md", "trip [2024]/a[1].jpg"),
)
PICTURES = ["a.PNG", "b.jpg", "deep/d.gif", "deep/er/c.webp"]
ODD = "trip [2024]/a[1].jpg"  # a name that looks like a pattern


@pytest.fixture
def here(tmp_path, monkeypatch):
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["."], [*PICTURES, ODD]),
        (["deep"], ["deep/d.gif", "deep/er/c.webp"]),
        (["b.jpg", "a.PNG"], ["b.jpg", "a.PNG"]),
        (["notes.txt"], ["notes.txt"]),  # whoever names a file means it
        (["*"], [*PICTURES, ODD]),
        (["*.jpg", "deep", "b.jpg"], ["b.jpg", "deep/d.gif", "deep/er/c.webp"]),
        (["**/*.webp"], ["deep/er/c.webp"]),
        (["trip [2024]/*.jpg"], [ODD]),
        (["trip*/a[1].jpg", "**/a[1].jpg"], [ODD]),
        ([], []),
    ],
)
def test_arguments_become_pictures(here, arguments, expected):
    assert data.expand_pictures(arguments) == [pathlib.Path(path) for path in expected]
    absolute = data.expand_pictures([here / argument for argument in arguments])
    assert absolute == [here / path for path in expected]


@pytest.mark.parametrize("argument", [".", "**/*", "[b-d]*/**/*.jpg"])
def test_what_systems_leave_and_links_upward_are_passed_over(here, argument):
    for name in (
        *("__MACOSX/._b.jpg", "__MACOSX/deep/x.jpg", "deep/@eaDir/d.gif/SYNOPHOTO_THUMB_M.jpg"),
        *("deep/.ipynb_checkpoints/d-checkpoint.jpg", "$RECYCLE.BIN/c.jpg", "lost+found/c.jpg"),
        *("deep/Thumbs.db", ".DS_Store", "._b.jpg", "deep/k.jpg", "../elsewhere/e.jpg"),
    ):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).touch()
    for link, target in (("up", ".."), ("here", "."), ("deep/top", ".."), ("deep/er/two", "../..")):
        (here / link).symlink_to(target)
    for link in ("linked", "once_more"):
        (here / "deep" / link).symlink_to(here.parent / "elsewhere")
    for depth in range(25):  # 2^25 paths
        (here / f"d{depth}").mkdir()
        for link in "xy":
            (here / f"d{depth}" / link).symlink_to(here / f"d{depth + 1}")
    expected = sorted([*PICTURES, "deep/k.jpg", "deep/linked/e.jpg", ODD])
    if argument.startswith("["):
        expected = ["deep/k.jpg", "deep/linked/e.jpg"]
    assert sorted(map(str, data.expand_pictures([argument]))) == expected


NAMES = (
    *("-dash.png", "line\nbreak.png", '"quoted".png', "ä" * 120 + ".png"),
    *(os.fsdecode(b"no\xfftext.png"), "a" * 251 + ".png"),
)


@pytest.fixture
def root(tmp_path):
    for i in range(6):
        write(tmp_path / "images" / "ab"[i % 2] / f"{i}.png", 20 * i)
    return tmp_path / "images"


def load(root, on_corrupt="skip"):
    return data.load(f"folder:{root}", 3, DataConfig(test_percent=0, on_corrupt=on_corrupt))


def read(split):
    """The gray level of each image as training reads it."""
    options = {"image_size": (4, 6), "preprocessing": Preprocessing(mean=(0,), std=(1 / 255,))}
    images = [batch for batch, _ in data.eval_batches(split, batch=4, **options)]
    return np.concatenate(images)[:, 0, 0, 0].round().astype(int).tolist()


def test_any_name_is_read(root, tmp_path):
    odd = [root / "a" / name for name in NAMES]
    for path in odd:
        write(path, 200)
        assert data.read_image(path, 1)[0, 0, 0] == 200
    assert {*map(str, odd)} <= {*map(str, data.expand_pictures([root]))}
    (tmp_path / "run").mkdir()
    for _ in range(2):
        dataset = load(root, "stop")
        data.check_unchanged(dataset, tmp_path / "run")
    assert sorted(read(dataset.split("train"))) == [0, 20, 40, 60, 80, 100, *[200] * len(odd)]
    for path in odd:
        path.write_bytes(b"")
    dataset = load(root)
    assert len(read(dataset.split("train"))) == 6 + len(odd)
    assert dataset.unreadable.names == {*map(str, odd)}
    dataset.unreadable.report().encode()  # can be printed


def test_what_leads_nowhere_is_gone_or_may_never_end_is_unreadable(root):
    for name, target in (("nowhere", root / "none"), ("loop", "loop.png"), ("zeros", "/dev/zero")):
        (root / "a" / f"{name}.png").symlink_to(target)
    (root / "circle").symlink_to(root / "circle")
    os.mkfifo(root / "a" / "pipe.png")
    assert root / "a" / "loop.png" in data.expand_pictures([root])
    dataset = load(root)
    split = dataset.split("train")
    (root / "b" / "1.png").unlink()
    (root / "b" / "3.png").unlink()
    (root / "b" / "3.png").mkdir()
    fingerprint(dataset)  # which reads all files
    assert len(read(split)) == 10
    gone = {"a/nowhere.png", "a/loop.png", "a/zeros.png", "a/pipe.png", "b/1.png", "b/3.png"}
    assert dataset.unreadable.names == {str(root / name) for name in gone}
    for name in gone:
        with pytest.raises(FileNotFoundError, match=f"There is no image at '.*{name}'"):
            data.read_image(root / name, 3)
