"""The work that is measured: model sizes, images, and the floating-point operations of a step."""

from typing import NamedTuple

import numpy as np

IMAGE, PATCH, CLASSES = 224, 16, 1000
SIZES = {  # hidden_size, num_layers, num_heads, mlp_dim
    "Ti": (192, 12, 3, 768),
    "S": (384, 12, 6, 1536),
    "B": (768, 12, 12, 3072),
    "L": (1024, 24, 16, 4096),
}


class Case(NamedTuple):
    """One measurement: `mode` is "train" or "infer", `precision` is "fp32" or "bf16"."""

    size: str
    mode: str
    precision: str
    batch: int


def random_batch(batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Images `(batch, 224, 224, 3)` in [-1, 1] and labels `(batch,)`, the same at every call."""
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (batch, IMAGE, IMAGE, 3)).astype("float32")
    return images, rng.integers(0, CLASSES, batch)


def flops(case: Case) -> float:
    """The floating-point operations of a step's matrix products.

    A multiply-add counts as 2, and a training step as three forward passes.
    """
    width, layers, _, mlp = SIZES[case.size]
    patches = (IMAGE // PATCH) ** 2
    tokens = patches + 1
    block = tokens * (4 * width**2 + 2 * width * mlp) + 2 * tokens**2 * width
    macs = patches * PATCH**2 * 3 * width + layers * block + width * CLASSES
    return 2.0 * macs * case.batch * (3 if case.mode == "train" else 1)
