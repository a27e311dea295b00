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

# Other families at 224 pixels: the patch, a size above, the arguments of our model beside them, and
# the name of timm's model.
FAMILIES = {
    "DINOv2-S/14": (14, "S", {"layer_scale": 1e-5}, "vit_small_patch14_dinov2"),
    "SigLIP-B/16": (16, "B", {"classifier": "map"}, "vit_base_patch16_siglip_224"),
    "CLIP-B/32": (
        32,
        "B",
        {"pre_norm": True, "layer_norm_epsilon": 1e-5},
        "vit_base_patch32_clip_224",
    ),
}


class Case(NamedTuple):
    """One measurement: `mode` is "train" or "infer", `precision` is "fp32" or "bf16".

    `size` is a key of `SIZES`, for the paper's model with patches of 16, or of `FAMILIES`.
    """

    size: str
    mode: str
    precision: str
    batch: int


def dimensions(case: Case) -> tuple[int, tuple[int, int, int, int], dict]:
    """The patch size, the sizes in `SIZES` and our model's other arguments."""
    if case.size not in FAMILIES:
        return PATCH, SIZES[case.size], {}
    patch, size, arguments, _ = FAMILIES[case.size]
    return patch, SIZES[size], arguments


def random_batch(batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Images `(batch, 224, 224, 3)` in [-1, 1] and labels `(batch,)`, the same at every call."""
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (batch, IMAGE, IMAGE, 3)).astype("float32")
    return images, rng.integers(0, CLASSES, batch)


def flops(case: Case) -> float:
    """The floating-point operations of a step's matrix products.

    A multiply-add counts as 2, and a training step as three forward passes.
    """
    patch, (width, layers, _, mlp), _ = dimensions(case)
    patches = (IMAGE // patch) ** 2
    tokens = patches + 1
    block = tokens * (4 * width**2 + 2 * width * mlp) + 2 * tokens**2 * width
    macs = patches * patch**2 * 3 * width + layers * block + width * CLASSES
    return 2.0 * macs * case.batch * (3 if case.mode == "train" else 1)
