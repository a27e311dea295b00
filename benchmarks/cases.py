"""The work that is measured: models, images, and the floating-point operations of a step."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

IMAGE, PATCH, CLASSES = 224, 16, 1000
SIZES = {  # hidden_size, num_layers, num_heads, mlp_dim
    "Ti": (192, 12, 3, 768),
    "S": (384, 12, 6, 1536),
    "B": (768, 12, 12, 3072),
    "L": (1024, 24, 16, 4096),
}

# Other families: the patch, a size above, the arguments of our model beside them, and the name of
# timm's model.
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
MODES = ("train", "infer")
AUGMENT = "augment"  # the mode that makes batches of pictures, without a model


class Case(NamedTuple):
    """One measurement.

    Attributes:
        size: A key of `SIZES`, for the paper's model with patches of 16, or of `FAMILIES`; for
            augmentation its name.
        mode: "train", "infer", or `AUGMENT`.
        precision: "fp32" or "bf16".
        batch: Images in a step.
        image_size: The side of the images in pixels.
    """

    size: str
    mode: str
    precision: str
    batch: int
    image_size: int = IMAGE


AUGMENTATION = Case("RandAugment (2, 10)", AUGMENT, "", 128)


def every(
    models: Sequence[str],
    modes: Sequence[str],
    precisions: Sequence[str],
    batches: Sequence[int],
    tokens: Sequence[int] = (),
) -> list[Case]:
    """All combinations; without `tokens`, images have 224 x 224 pixels."""
    combinations = itertools.product(models, tokens or [None], modes, precisions, batches)
    return [
        Case(model, mode, precision, batch, image_size(model, count))
        for model, count, mode, precision, batch in combinations
    ]


def image_size(model: str, tokens: int | None = None) -> int:
    """The side of the square image whose number of patches is nearest to `tokens`."""
    if tokens is None:
        return IMAGE
    patch = FAMILIES[model][0] if model in FAMILIES else PATCH
    return patch * max(1, round(math.sqrt(tokens)))


def dimensions(case: Case) -> tuple[int, tuple[int, int, int, int], dict]:
    """The patch size, the sizes in `SIZES` and our model's other arguments."""
    if case.size not in FAMILIES:
        return PATCH, SIZES[case.size], {}
    patch, size, arguments, _ = FAMILIES[case.size]
    return patch, SIZES[size], arguments


def random_batch(batch: int, image_size: int = IMAGE) -> tuple[np.ndarray, np.ndarray]:
    """Images `(B, H, W, 3)` in [-1, 1] and labels `(B,)`, the same at every call."""
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (batch, image_size, image_size, 3)).astype("float32")
    return images, rng.integers(0, CLASSES, batch)


def flops(case: Case) -> float | None:
    """The floating-point operations of a step's matrix products; None without a model.

    A multiply-add counts as 2, and a training step as three forward passes.
    """
    if case.mode == AUGMENT:
        return None
    patch, (width, layers, _, mlp), _ = dimensions(case)
    patches = (case.image_size // patch) ** 2
    tokens = patches + 1
    block = tokens * (4 * width**2 + 2 * width * mlp) + 2 * tokens**2 * width
    macs = patches * patch**2 * 3 * width + layers * block + width * CLASSES
    return 2.0 * macs * case.batch * (3 if case.mode == "train" else 1)
