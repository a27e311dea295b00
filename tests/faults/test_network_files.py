"""What network file systems do, simulated: files that stay."""

import os

import numpy as np
import pytest

from tests.training.small import small_config, small_model
from vit_keras.training import checkpoints

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
