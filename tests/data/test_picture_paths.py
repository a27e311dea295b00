"""Files, folders, and patterns are expanded into pictures."""

import pathlib

import pytest

from vit_keras import data

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
