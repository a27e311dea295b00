<<<<<<< HEAD
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
=======
"""Checkpoints of other families against what their publishers' code computes from them."""

import keras
import numpy as np
import pytest

from tests.helpers import GOLDEN
from vit_keras import weights
from vit_keras.models import with_image_size

# The folders in `tests/golden/families`, and what `from_checkpoint` needs beside them.
FOLDERS: dict[str, dict] = {
    "timm_beit": {},
    "timm_clip_quickgelu": {},
    "timm_deit3": {},
    "timm_deit_distilled": {},
    "timm_dino": {},
    "timm_dinov2": {},
    "timm_dinov2_giant_reg4": {},
    "timm_dinov3_plus": {},
    "timm_dinov3_qkvb": {},
    "timm_eva02_base": {},
    "timm_eva02_small": {},
    "timm_flexivit": {},
    "timm_mae_fine_tuned": {},
    "timm_naflexvit_siglip": {},
    "timm_parallel_xp": {},
    "timm_pe_core": {},
    "timm_qk_norm": {},
    "timm_reg4_gap": {},
    "timm_rope_reg1_gap": {},
    "timm_siglip": {},
    "timm_so150m_reg4_map": {},
}
# Folders whose `tokens` are those of the last block, before the last normalization.
BEFORE_NORM = {
    "timm_beit",
    "timm_eva02_base",
    "timm_eva02_small",
    "timm_mae_fine_tuned",
    "timm_reg4_gap",
    "timm_rope_reg1_gap",
}


def golden(name):
    """A model, and what its publisher's code computes."""
    folder = GOLDEN / "families" / name
    with np.load(folder / "io.npz") as file:
        return weights.from_checkpoint(folder, **FOLDERS[name]), dict(file)


@pytest.mark.parametrize("name", FOLDERS)
def test_model_computes_as_its_publishers_code(name):
    compare(name, *golden(name), "")


@pytest.mark.on("torch")  # positions are resized in NumPy
@pytest.mark.parametrize("name", FOLDERS)
def test_model_of_another_size_computes_as_its_publishers_code(name):
    model, expected = golden(name)
    for suffix in ("_resized", "_2"):
        if f"images{suffix}" in expected:
            images = expected[f"images{suffix}"]
            compare(name, with_image_size(model, images.shape[1:3]), expected, suffix)


def compare(name, model, expected, suffix):
    blocks = [layer.name for layer in model.layers if layer.name.startswith("encoderblock_")]
    layer = model.get_layer(blocks[-1] if name in BEFORE_NORM else "encoder_norm")
    both = keras.Model(model.input, [layer.output, model.output])
    results = both.predict_on_batch(expected[f"images{suffix}"])
    output = "logits" if f"logits{suffix}" in expected else "pooled"
    for result, key in zip(results, ("tokens", output)):
        message = f"{name}, {key}{suffix}"
        np.testing.assert_allclose(
            result, expected[key + suffix], atol=5e-5, rtol=0, err_msg=message
        )
>>>>>>> f323adf (timm files of every family are read and written from tables of names and of architectures, and compared with what timm computes)
