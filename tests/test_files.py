"""Files and folders are replaced in one step, whatever interrupts it."""

import os

import pytest

from tests.helpers import killed_before
from vit_keras.support import files

pytestmark = pytest.mark.once


def write_folder(folder, text, *more):
    with files.replacing_folder(folder) as new:
        (new / "deep").mkdir()
        for name in ("text", "deep/text", *more):
            (new / name).write_text(text)


def read_folder(folder):
    return {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_text_replaces_a_file_and_an_error_leaves_the_old_one(tmp_path):
    for text in ("né\n", "old"):
        files.write_text(tmp_path / "file.txt", text)
        assert (tmp_path / "file.txt").read_bytes() == text.encode()
    with pytest.raises(KeyError), files.replacing(tmp_path / "file.txt") as temporary:
        assert temporary.endswith("file.txt")
        with open(temporary, "w") as file:
            file.write("half")
        raise KeyError
    assert (tmp_path / "file.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_a_file_that_is_a_folder_is_refused_before_it_is_written(tmp_path):
    refused = pytest.raises(IsADirectoryError, match="not a file. Delete or rename it")
    with refused, files.replacing(tmp_path):
        pytest.fail("the block ran")


def test_a_folder_replaces_all_of_another_but_no_file(tmp_path):
    folder = tmp_path / "some" / "folder"
    write_folder(folder, "old", "more")
    assert set(read_folder(folder)) == {"text", "more"}
    write_folder(folder, "new")
    assert read_folder(folder) == {"text": "new"} and (folder / "deep" / "text").is_file()
    with pytest.raises(NotADirectoryError, match="text', a file"):
        write_folder(folder / "text", "new")
    assert os.listdir(folder.parent) == ["folder"]


@pytest.mark.parametrize("recovers", [True, False])
@pytest.mark.parametrize("operation", range(9))
def test_a_folder_is_never_seen_in_part(tmp_path, operation, recovers):
    """A removal, flushes of two files and the folder, two renames, a flush and two removals."""
    write_folder(tmp_path / "folder", "old")
    with killed_before(operation):
        write_folder(tmp_path / "folder", "new")
    expected = "new" if operation >= 6 else "old"
    if (tmp_path / "folder").exists():
        assert (tmp_path / "folder" / "deep").is_dir()
        assert read_folder(tmp_path / "folder") == {"text": expected}
    else:
        assert operation == 5  # between two renames
    if recovers:
        files.recover(tmp_path)
        assert os.listdir(tmp_path) == ["folder"]
    else:
        write_folder(tmp_path / "folder", expected := "newer")
    assert read_folder(tmp_path / "folder") == {"text": expected}
    assert os.listdir(tmp_path) == ["folder"]


def test_a_folder_is_removed_at_once(tmp_path):
    write_folder(tmp_path / "folder", "old")
    with killed_before(2):  # a removal of remains and the rename
        files.remove_folder(tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == [".partial-folder", ".partial-folder.lock"]
    files.recover(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_the_mode_of_every_file_is_what_the_umask_asks_for(tmp_path, umask):
    def private(path):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))

    write_folder(tmp_path / "folder", "mine")
    (tmp_path / "folder" / "text").chmod(0o640)
    before = os.umask(umask)
    try:
        with files.replacing(tmp_path / "a.txt") as temporary:
            private(temporary)
        with files.replacing_folder(tmp_path / "folder", keep=True) as new:
            (new / "in").mkdir()
            private(new / "in" / "b.txt")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.txt")}
    assert modes == dict.fromkeys(["a.txt", "b.txt"], 0o666 & ~umask)
    kept = tmp_path / "folder" / "text"
    assert kept.stat().st_mode & 0o777 == 0o640 and kept.read_text() == "mine"
