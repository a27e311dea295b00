"""The soak's measurements see what they are there for."""

import dataclasses
import json
import mmap
import os

import numpy as np
import pytest

from benchmarks import process_signs
from benchmarks.soak_training import compare

pytestmark = pytest.mark.once
SIZE = 2**26


def write_run(folder, weight, loss):
    checkpoint = folder / "checkpoints" / "step_000000400"
    checkpoint.mkdir(parents=True)
    np.savez(checkpoint / "state.npz", **{"model/00000": weight})
    row = {"step": 400, "loss": loss, "images_per_second": os.urandom(1)[0]}
    (folder / "metrics.json").write_text(json.dumps([row]))
    return folder


def test_a_flipped_bit_in_a_checkpoint_or_a_row_is_named(tmp_path):
    weight = np.float32([0.0, 1.0])
    straight = write_run(tmp_path / "straight", weight, 0.5)
    assert compare(straight, write_run(tmp_path / "same", weight, 0.5)) == ([], 1)
    flipped = np.float32([-0.0, 1.0])  # equal as a number, another bit
    differ, compared = compare(straight, write_run(tmp_path / "other", flipped, 0.5 + 2**-53))
    assert differ == ["other/step_000000400: model/00000", "other/metrics.json: 1 rows"]
    assert compared == 1


def test_an_open_file_and_used_memory_are_seen(tmp_path):
    before = process_signs.look()
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # not of the heap, which may have gaps
    with open(tmp_path / "file", "w"), mmap.mmap(-1, SIZE, private) as used:
        used.write(b"1" * SIZE)
        after = process_signs.look()
    assert after.files == before.files + 1
    assert after.anonymous - before.anonymous >= 0.9 * SIZE / 2**20 - 1
    assert after.resident >= after.anonymous


@pytest.mark.parametrize("sign", ["resident", "anonymous", "files", "threads"])
def test_growth_after_the_warm_up_is_not_flat(sign):
    still = process_signs.Signs(0.0, 1000.0, 500.0, 7, 20)
    starting = dataclasses.replace(still, resident=100.0, anonymous=50.0, threads=2)
    seen = [starting] * 5 + [still] * 20
    assert process_signs.is_flat(process_signs.compare_ends(seen[5:]))
    assert not process_signs.is_flat(process_signs.compare_ends(seen))
    grown = [
        dataclasses.replace(still, **{sign: getattr(still, sign) * (1 + i / 100)})
        for i in range(20)
    ]
    ends = process_signs.compare_ends(grown)
    assert not process_signs.is_flat(ends)
    if sign in process_signs.MEMORY:
        assert ends[f"{sign}_growth"] == pytest.approx(1.175 / 1.015 - 1)
