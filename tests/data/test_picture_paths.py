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


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        ("nowhere.jpg", FileNotFoundError, r"no picture and no folder at 'nowhere\.jpg'"),
        ("*.bmp", ValueError, r"pattern must match pictures .*'\*\.bmp', which matches none"),
        ("*.txt", ValueError, r"pattern must match pictures .*'\*\.txt', which matches none"),
        ("empty", ValueError, r"must hold .*\.jpg.* files. Received: 'empty', with none"),
    ],
)
def test_what_holds_no_picture_is_named(root, argument, error, message):
    with pytest.raises(error, match=message):
        data.expand_pictures(["b.jpg", argument])
