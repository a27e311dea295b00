"""Files, folders, and patterns are expanded into pictures."""

import os
import pathlib
import re

import pytest

from vit_keras import data
from vit_keras.data.picture_paths import is_junk

pytestmark = pytest.mark.once

FILES = (
    *("b.jpg", "a.PNG", "deep/er/c.webp", "deep/d.gif", "notes.txt", ".hidden.jpg"),
    *(".cache/e.jpg", "empty/readme.md"),
)


@pytest.fixture
def root(tmp_path, monkeypatch):
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["."], ["a.PNG", "b.jpg", "deep/d.gif", "deep/er/c.webp"]),
        (["deep"], ["deep/d.gif", "deep/er/c.webp"]),
        (["b.jpg", "a.PNG"], ["b.jpg", "a.PNG"]),
        (["notes.txt"], ["notes.txt"]),  # whoever names a file means it
        (["*"], ["a.PNG", "b.jpg", "deep/d.gif", "deep/er/c.webp"]),
        (["*.jpg", "deep", "b.jpg"], ["b.jpg", "deep/d.gif", "deep/er/c.webp"]),
        (["**/*.webp"], ["deep/er/c.webp"]),
        ([], []),
    ],
)
def test_arguments_become_pictures(root, arguments, expected):
    assert data.expand_pictures(arguments) == [pathlib.Path(path) for path in expected]
    absolute = data.expand_pictures([root / argument for argument in arguments])
    assert absolute == [root / path for path in expected]


@pytest.mark.parametrize("argument", [".", "*", "**", "**/*", "**/*.jpg", "[b-d]*/**/*.jpg"])
def test_what_systems_leave_and_links_upward_are_passed_over(root, argument):
    for name in (
        *("__MACOSX/._b.jpg", "__MACOSX/deep/x.jpg", "deep/@eaDir/d.gif/SYNOPHOTO_THUMB_M.jpg"),
        *("deep/.ipynb_checkpoints/d-checkpoint.jpg", "$RECYCLE.BIN/c.jpg", "lost+found/c.jpg"),
        *("deep/Thumbs.db", ".DS_Store", "._b.jpg", "deep/k.jpg", "../elsewhere/e.jpg"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    for link, target in (("up", ".."), ("here", "."), ("deep/top", ".."), ("deep/er/two", "../..")):
        (root / link).symlink_to(target)
    (root / "deep" / "linked").symlink_to(root.parent / "elsewhere")
    (root / "deep" / "once_more").symlink_to(root.parent / "elsewhere")
    expected = ["a.PNG", "b.jpg", "deep/d.gif", "deep/er/c.webp", "deep/k.jpg", "deep/linked/e.jpg"]
    if argument.endswith(".jpg"):
        expected = [path for path in expected if path.endswith(".jpg")]
    if argument.startswith("["):
        expected.remove("b.jpg")
    assert sorted(map(str, data.expand_pictures([argument]))) == expected


def test_a_pattern_finds_names_that_look_like_patterns(root):
    (root / "trip [2024]").mkdir()
    (root / "trip [2024]" / "a[1].jpg").touch()
    for pattern in ("trip [2024]/*.jpg", "trip*/a[1].jpg", "**/a[1].jpg"):
        assert data.expand_pictures([pattern]) == [pathlib.Path("trip [2024]/a[1].jpg")]


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        ("nowhere.jpg", FileNotFoundError, r"no picture and no folder at 'nowhere\.jpg'"),
        ("*.bmp", ValueError, r"pattern must match pictures .*'\*\.bmp', with none"),
        ("*.txt", ValueError, r"pattern must match pictures .*'\*\.txt', with none"),
        ("empty", ValueError, r"must hold pictures .*\.jpg.*\. Received: 'empty', with none"),
    ],
)
def test_what_holds_no_picture_is_named(root, argument, error, message):
    with pytest.raises(error, match=message):
        data.expand_pictures(["b.jpg", argument])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("__MACOSX", "._x.jpg", ".DS_Store", "@eaDir", ".ipynb_checkpoints", "Thumbs.db"), True),
        (("$RECYCLE.BIN", "lost+found", "System Volume Information", "#recycle", "~$a.csv"), True),
        (("desktop.ini", ".Trash-1000", "@Recycle", "x.jpg@SynoEAStream", "Icon\r"), True),
        (("cat", "x.jpg", "__cat__", "macosx", "@home", "$100", "thumbs", "a.b", "lost"), False),
    ],
)
def test_what_systems_leave_in_folders_is_junk(names, expected):
    assert [is_junk(name) for name in names] == [expected] * len(names)


@pytest.mark.parametrize("argument", [".", "*", "deep", "**/*.webp", "deep/*/c.webp", "linked"])
def test_an_unreadable_folder_is_an_error(root, monkeypatch, argument):
    (root / "linked").mkdir()
    (root / "linked" / "er").symlink_to(root / "deep" / "er")

    def refusing(look, closed):  # the superuser may read whatever the mode
        def refused(path, *args, **options):
            if re.search(closed, str(path)):
                raise PermissionError(13, "Permission denied", str(path))
            return look(path, *args, **options)

        return refused

    monkeypatch.setattr(os, "scandir", refusing(os.scandir, "er$"))
    monkeypatch.setattr(os, "lstat", refusing(os.lstat, "er/c.webp"))
    with pytest.raises(PermissionError, match="(deep|linked)/er"):
        data.expand_pictures([argument])
