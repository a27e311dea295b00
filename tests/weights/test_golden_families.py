"""Golden files of many families give what their publishers' code computes, resized too."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.helpers import GOLDEN, to_numpy
from vit_keras import models, weights

TOLERANCE = 5e-5


@dataclasses.dataclass(frozen=True)
class Family:
    """How a folder of `tests/golden/families` is read.

    Attributes:
        file: The name of the file of weights; empty for the folder.
        known: What no file says, such as `num_heads`.
        tokens: The layer of `models.intermediates` whose output `tokens` are.
    """

    file: str = ""
    known: dict[str, Any] = dataclasses.field(default_factory=dict)
    tokens: str = "encoder_norm"


FAMILIES = {
    "meta_dinov2": Family("dinov2_vits14_pretrain.pth", {"num_heads": 2}),
    "meta_dinov2_reg4": Family("dinov2_vits14_reg4_pretrain.pth", {"num_heads": 4}),
    "meta_pe_core": Family("PE-Core-B16-224.pt"),
    "open_clip_quickgelu": Family(tokens="encoderblock_1"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_outputs_equal_the_publishers_code(name):
    family, folder = FAMILIES[name], GOLDEN / "families" / name
    model = weights.from_checkpoint(folder / family.file, **family.known)
    with np.load(folder / "io.npz") as file:
        io = dict(file)
    for end in ("", "_resized") if "images_resized" in io else ("",):
        images = io[f"images{end}"]
        sized = models.with_image_size(model, images.shape[1:3]) if end else model
        output = models.intermediates(sized)(images)
        name = "logits" if "logits" in io else "pooled"
        close = {"atol": TOLERANCE, "rtol": 0, "err_msg": end}
        np.testing.assert_allclose(to_numpy(sized(images)), io[f"{name}{end}"], **close)
        np.testing.assert_allclose(to_numpy(output[family.tokens]), io[f"tokens{end}"], **close)
