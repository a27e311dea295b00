"""What network file systems do, simulated: renames seen late, files that stay."""

import os

import numpy as np
import pytest

from tests.training.halves import arrives_late
from tests.training.small import small_config, small_model
from vit_keras.training import checkpoints
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


class OtherProcess:
    """The second of two processes, of which the first one sees checkpoint `step`."""

    is_chief = False

    def __init__(self, step):
        self.step = step

    def gather(self, step):
        return np.array([self.step, step])

    def __getattr__(self, name):
        return getattr(ALONE, name)


@pytest.mark.parametrize("appears", [True, False])
def test_a_process_waits_until_it_sees_a_rename(tmp_path, monkeypatch, appears):
    model = save(tmp_path, 1, 2)
    pauses = arrives_late(monkeypatch, tmp_path / "step_000000002", appears)
    if appears:
        assert checkpoints.restore(model, tmp_path, OtherProcess(2)) == 2
        assert len(pauses) == 2
    else:
        with pytest.raises(ValueError, match=r"see the same `workdir`.*step_000000002"):
            checkpoints.restore(model, tmp_path, OtherProcess(2))
        assert len(pauses) >= 10
