"""What each device holds of a run's state, and what a checkpoint of it gives to other devices."""

import json

import numpy as np

HELD = {  # by one of four devices, of the kernels of query, out, head and Dense_0
    "model_parallel": ([16, 1, 8], [1, 8, 16], [8, 10], [16, 8]),
    "fully_sharded": ([4, 2, 8], [2, 8, 4], [4, 10], [4, 16]),
}


def assert_split(folder):
    """Reads the shapes that `several_devices` left of each run."""
    for kind, (query, out, head, hidden) in HELD.items():
        held = json.loads((folder / f"{kind}.json").read_text())
        block = "encoderblock_0/MultiHeadDotProductAttention_1"
        assert held[f"{block}/query/kernel"] == [query]
        assert held[f"{block}/out/kernel"] == [out]
        assert held["head/kernel"] == [head]
        assert held["encoderblock_0/LayerNorm_0/gamma"] == [[16]]
        slots = [shape for path, shape in held.items() if "Dense_0_kernel" in path]
        assert slots == [[hidden]] * 2  # its two moments


def assert_moved(folder):
    """The checkpoint in shards has the same bits on 2 devices, on 1 and on 4."""
    moved = ["fully_sharded/checkpoints", "moved_0", "moved_1", "moved_2"]
    first, *others = (np.load(folder / name / "step_000000020/state.npz") for name in moved)
    assert len(first.files) > 60
    for other in others:
        assert other.files == first.files
        for name in first.files:
            np.testing.assert_array_equal(other[name], first[name])
