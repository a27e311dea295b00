"""What network file systems do, simulated: renames done twice or seen late, files that stay."""

import contextlib
import errno
import fcntl
import os

import numpy as np
import pytest

from tests.training.small import small_config, small_model
from vit_keras import files
from vit_keras.training import checkpoint_files, checkpoints
from vit_keras.training.distribution import ALONE

pytestmark = pytest.mark.once


def save(folder, *steps, keep=4):
    model = small_model(small_config(folder))
    for step in steps:
        model.get_layer("head").bias.assign(np.full(3, step, "float32"))
        checkpoints.save(model, folder, step, keep=keep)
    return model


def visible(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_rename_whose_answer_was_lost_is_done(tmp_path, monkeypatch):
    """The second request finds no source (RFC 1813, 4.8): ENOENT for what has happened."""
    rename = os.replace

    def repeated(source, target):
        rename(source, target)
        rename(source, target)

    monkeypatch.setattr(os, "replace", repeated)
    files.write_text(tmp_path / "a.json", "new")
    assert (tmp_path / "a.json").read_text() == "new"
    with files.replacing_folder(tmp_path / "folder") as new:
        (new / "b").write_text("b")
    files.remove_folder(tmp_path / "folder")
    assert visible(tmp_path) == ["a.json"]
    monkeypatch.setattr(os, "replace", lambda source, target: rename(f"{source}-", target))
    with pytest.raises(FileNotFoundError, match=r"a\.json"):
        files.write_text(tmp_path / "a.json", "newer")
    assert (tmp_path / "a.json").read_text() == "new"


def silly_rename(path, *, dir_fd=None):
    """What a client of NFS does with a file that it removes while it is open."""
    os.rename(path, f".nfs{os.path.basename(path)}", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)


def test_a_removed_folder_with_open_files_goes_later(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", silly_rename)
        save(tmp_path, 1, 2, 3, keep=1)
    assert visible(tmp_path)[-1] == "step_000000003" and len(visible(tmp_path)) > 1
    assert all(name.startswith(".partial-") for name in visible(tmp_path)[:-1])
    assert checkpoints.newest(tmp_path) == tmp_path / "step_000000003"
    assert visible(tmp_path) == ["step_000000003"]


@pytest.mark.parametrize("times", [1, 3])
def test_a_stale_handle_is_opened_again(tmp_path, monkeypatch, times):
    """ESTALE at the first look is none at the second; one that stays is damage."""
    model, opened = save(tmp_path, 1, 2), []
    read = checkpoint_files.read_json

    def stale(path, *arguments):
        if path.parent.name == "step_000000002":
            opened.append(path)
            if len(opened) <= times:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return read(path, *arguments)

    monkeypatch.setattr(checkpoint_files, "read_json", stale)
    if times == 1:
        assert checkpoints.restore(model, tmp_path) == 2
    else:
        with pytest.warns(UserWarning, match="step_000000002 is damaged .*Stale file handle"):
            assert checkpoints.restore(model, tmp_path) == 1


class OtherProcess:
    """The topology of two processes, whose other one sees checkpoint `step`."""

    is_chief = False

    def __init__(self, step):
        self.step = step

    @contextlib.contextmanager
    def chief_first(self):
        yield

    def gather(self, step):
        return np.array([self.step, step])

    def __getattr__(self, name):
        return getattr(ALONE, name)


@pytest.mark.parametrize("appears", [True, False])
def test_a_process_waits_until_it_sees_a_rename(tmp_path, monkeypatch, appears):
    model, pauses = save(tmp_path, 1, 2), []
    late = tmp_path / "step_000000002"
    late.rename(tmp_path / "not-yet")

    def sleep(seconds):
        pauses.append(seconds)
        if appears and len(pauses) == 2:
            (tmp_path / "not-yet").rename(late)

    monkeypatch.setattr(checkpoints.time, "sleep", sleep)
    if appears:
        assert checkpoints.restore(model, tmp_path, OtherProcess(2)) == 2
        assert pauses == [1, 2]
    else:
        with pytest.raises(ValueError, match=r"see the same `workdir`.*steps \[1, 2\]"):
            checkpoints.restore(model, tmp_path, OtherProcess(2))
        assert sum(pauses) == 15


def test_without_locks_saves_go_on(tmp_path, monkeypatch):
    def no_locks(file, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    files.write_text(tmp_path / "a.json", "new")
    save(tmp_path / "checkpoints", 1, 2, keep=1)
    assert (tmp_path / "a.json").read_text() == "new"
    assert visible(tmp_path) == ["a.json", "checkpoints"]
    (tmp_path / "checkpoints" / ".partial-0-x").mkdir()
    assert checkpoints.restore(save(tmp_path / "other", 1), tmp_path / "checkpoints", ALONE) == 2
    assert visible(tmp_path / "checkpoints") == ["step_000000002"]
