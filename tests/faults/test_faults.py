"""Every save survives every fault: the old content stays whole, or the new one is whole."""

import collections
import os
import re

import numpy as np
import pytest

from tests.faults import sweep
from tests.training.small import small_config, small_model
from vit_keras.training import checkpoints

SAMPLE = 31  # every 31st call of a save, and another one for each fault


@pytest.mark.once
@pytest.mark.parametrize("every", [SAMPLE, pytest.param(1, marks=pytest.mark.nightly)])
def test_faults_lose_nothing(every):
    done = sweep.run_below("--every", str(every), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    seen = collections.Counter()
    for end, count in re.findall(r"'([^']+)': (\d+)[,}]", done.stdout):
        seen[end] += int(count)
    assert seen["error, old"] > 20 and seen["killed, old"] > 5 and seen["killed, new"] > 0


def silly_rename(path, *, dir_fd=None):
    """What a client of NFS does with a file that it removes while it is open."""
    os.rename(path, f".nfs{os.path.basename(path)}", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)


@pytest.mark.once
def test_a_removed_folder_with_open_files_goes_later(tmp_path, monkeypatch):
    model = small_model(small_config(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", silly_rename)
        for step in (1, 2, 3):
            model.get_layer("head").bias.assign(np.full(3, step, "float32"))
            checkpoints.save(model, tmp_path, step, keep=1)
    *partial, last = sorted(path.name for path in tmp_path.iterdir())
    assert last == "step_000000003" and partial
    assert all(name.startswith(".partial-") for name in partial)
    assert checkpoints.newest(tmp_path) == tmp_path / last
    assert [path.name for path in tmp_path.iterdir()] == [last]
