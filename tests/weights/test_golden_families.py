"""Golden files of many families give what their publishers' code computes, resized too."""

import dataclasses
from typing import Any

import keras
import numpy as np
import pytest

import vit_keras
from tests.helpers import GOLDEN, assert_close
from vit_keras import models


@dataclasses.dataclass(frozen=True)
class Family:
    """How a folder of `tests/golden/families` is read.

    Attributes:
        file: The name of the file of weights; empty for the folder.
        known: What no file says, such as `num_heads`.
        tokens: The layer of `models.intermediates` whose output `tokens` are.
        rule: How the publisher resized the golden model, if not by the rule for its files.
    """

    file: str = ""
    known: dict[str, Any] = dataclasses.field(default_factory=dict)
    tokens: str = "encoder_norm"
    rule: str | None = None


FAMILIES = {
    "meta_dinov2": Family("dinov2_vits14_pretrain.pth", {"num_heads": 2}),
    "meta_dinov2_reg4": Family("dinov2_vits14_reg4_pretrain.pth", {"num_heads": 4}),
    "meta_pe_core": Family("PE-Core-B16-224.pt"),
    "open_clip_quickgelu": Family(tokens="encoderblock_1"),
    "timm_beit": Family(tokens="encoderblock_1"),
    "timm_clip_quickgelu": Family(),
    "timm_deit3": Family(),
    "timm_deit_distilled": Family(),
    "timm_dino": Family(),
    "timm_dinov2": Family(),
    "timm_dinov2_giant_reg4": Family(),
    "timm_dinov3_plus": Family(),
    "timm_dinov3_qkvb": Family(),
    "timm_eva02_base": Family(tokens="encoderblock_0"),
    "timm_eva02_small": Family(tokens="encoderblock_1"),
    "timm_flexivit": Family(rule="bicubic_antialias"),  # timm's `set_input_size`
    "timm_mae_fine_tuned": Family(tokens="encoderblock_1"),
    "timm_naflexvit_siglip": Family(),
    "timm_parallel_xp": Family(),
    "timm_pe_core": Family(),
    "timm_qk_norm": Family(),
    "timm_reg4_gap": Family(tokens="encoderblock_1"),
    "timm_rope_reg1_gap": Family(tokens="encoderblock_1"),
    "timm_siglip": Family(),
    "timm_so150m_reg4_map": Family(),
}


def golden(name):
    """The model of a folder, and the arrays of what its publisher's code computes."""
    family, folder = FAMILIES[name], GOLDEN / "families" / name
    with np.load(folder / "io.npz") as file:
        return vit_keras.open(folder / family.file, **family.known), dict(file)


def assert_golden(name, model, io, end=""):
    output = "logits" if "logits" in io else "pooled"
    tokens = model.get_layer(FAMILIES[name].tokens).output
    both = keras.Model(model.input, [tokens, model.output])  # one program
    for result, key in zip(both.predict_on_batch(io[f"images{end}"]), ("tokens", output)):
        assert_close(result, io[f"{key}{end}"], 1e-5, f"{name}, {key}{end}")


@pytest.mark.parametrize("name", FAMILIES)
def test_outputs_equal_the_publishers_code(name):
    assert_golden(name, *golden(name))


@pytest.mark.on("torch")  # positions are resized in NumPy
@pytest.mark.parametrize("name", FAMILIES)
def test_outputs_of_other_sizes_equal_the_publishers_code(name):
    model, io = golden(name)
    for end in ("_resized", "_2"):
        if f"images{end}" in io:
            size = io[f"images{end}"].shape[1:3]
            resized = models.with_image_size(model, size, FAMILIES[name].rule)
            assert_golden(name, resized, io, end)


FOLDERS = sorted(folder.name for folder in (GOLDEN / "families").glob("hf_*"))
# The folders whose `tokens` are not normalized: those of the last block.
LAST_BLOCK = ("hf_beit", "hf_clip_projection", "hf_clip_sparse_config")


def read(name):
    with np.load(GOLDEN / "families" / name / "io.npz") as file:
        return dict(file)


def compute(model, images):
    """Compiled on JAX, where an operation at a time takes longer; TensorFlow is the other way."""
    compiled = keras.backend.backend() == "jax"
    return model.predict(images, verbose=0) if compiled else model(images)


@pytest.mark.filterwarnings("ignore:.*DINOv3 License")
@pytest.mark.parametrize("name", FOLDERS)
def test_outputs_equal_transformers(name):
    model, io = vit_keras.open(GOLDEN / "families" / name), read(name)
    ends = [key.removeprefix("images") for key in io if key.startswith("images")]
    for end in ends:
        images = io[f"images{end}"]
        sized = models.with_image_size(model, images.shape[1:3])
        outputs = compute(models.intermediates(sized), images)
        tokens = "encoderblock_1" if name in LAST_BLOCK else "encoder_norm"
        assert_close(outputs[tokens], io[f"tokens{end}"], name=end)
        for vector in ("logits", "pooled"):
            if f"{vector}{end}" in io:
                assert_close(outputs[sized.layers[-1].name], io[f"{vector}{end}"], name=end)
