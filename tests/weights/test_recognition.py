"""Which family a file is, by its tensors and by what its project calls it."""

import json

import pytest

import vit_keras
from tests.designs import random_design
from tests.helpers import GOLDEN
from vit_keras import models, variants, weights
from vit_keras.variants.families import FAMILIES
from vit_keras.weights.recognition import family_name, variant_name

pytestmark = pytest.mark.on("torch")

FOLDER = GOLDEN / "families"
# The family, the head and what is left out of each golden folder.
EXPECTED = {
    "big_vision_siglip2_naflex/siglip2_naflex.npz": ("SigLIP2", None, "text tower"),
    "hf_beit": ("BEiT", "classifier"),
    "hf_clip_projection": ("CLIP", "projection"),
    "hf_deit_distilled": ("DeiT-distilled", "classifier"),
    "hf_dinov2_classify": ("DINOv2", "classifier"),
    "hf_dinov2_registers": ("DINOv2-reg", None),
    "hf_dinov2_swiglu": ("DINOv2", None),
    "hf_dinov3": ("DINOv3", None),
    "hf_dinov3_gated_no_bias": ("DINOv3", None),
    "hf_ijepa_classify": ("IJEPA", "classifier"),
    "hf_mae_pretraining": ("MAE", None, "decoder"),
    "hf_siglip_two_towers_cropped": ("SigLIP", None, "text tower"),
    "meta_dinov2/dinov2_vits14_pretrain.pth": ("DINOv2", None),
    "meta_dinov2_reg4/dinov2_vits14_reg4_pretrain.pth": ("DINOv2-reg", None),
    "meta_pe_core/PE-Core-B16-224.pt": ("PE-Core", "projection"),
    "open_clip_quickgelu": ("OpenCLIP", "projection", "text tower"),
    "timm_beit": ("BEiT", "classifier"),
    "timm_clip_quickgelu": ("CLIP", "classifier"),
    "timm_deit3": ("DeiTIII", "classifier"),
    "timm_dinov2": ("DINOv2", None),
    "timm_dinov2_giant_reg4": ("DINOv2-reg", None),
    "timm_dinov3_plus": ("DINOv3", None),
    "timm_eva02_base": ("EVA02", "classifier"),
    "timm_flexivit": ("FlexiViT", "classifier"),
    "timm_parallel_xp": (None, "classifier"),
    "timm_pe_core": ("PE-Core", "classifier"),
    "timm_qk_norm": (None, "classifier"),
    "timm_reg4_gap": ("ViT-reg4", "classifier"),
    "timm_siglip": ("SigLIP", None),
    "timm_so150m_reg4_map": ("ViT-reg4", "classifier"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_files_of_every_project_are_recognized(name):
    family, head, *left_out = EXPECTED[name]
    described = weights.describe(FOLDER / name)
    assert (described["family"], described["head"]) == (family, head)
    assert described["left_out"] == left_out
    if family is not None:
        said = described["license"].replace("-", " ").lower()  # timm writes "dinov3-license"
        assert said == FAMILIES[family].license.replace("-", " ").lower()
    assert json.loads(json.dumps(described)) == described


@pytest.mark.parametrize("name", FAMILIES)
def test_every_variant_with_options_is_recognized_by_its_arguments(name):
    family = FAMILIES[name]
    for size in family.sizes:
        variant = family.variant(size)
        arguments = variants.architecture(variant)
        assert variant_name(arguments, called=variant) == variant
        assert family_name(arguments, called=variant) == name
    plain = {"DeiT", "DINO", "MAE", "IJEPA"}  # nothing but the name tells them from the paper's
    twins = {"SigLIP2": "SigLIP", "BEiTv2": "BEiT"}
    unnamed = family_name(variants.architecture(family.variant(next(iter(family.sizes)))))
    assert unnamed == (None if name in plain else twins.get(name, name)) or name in twins


def test_a_variant_of_the_paper_stays_one():
    for name, row in variants.VISION_TRANSFORMERS.items():
        if name == "b/32":  # which has the sizes of S/32
            continue
        size = row.patch_size
        arguments = {**variants.architecture(name), "classifier": "token", "num_classes": 10}
        arguments["patch_size"] = (size, size)
        assert variant_name(arguments) == name and family_name(arguments) is None
    assert variant_name({"hidden_size": 24, "patch_size": (16, 16), "classifier": "token"}) is None


def test_refusals_name_the_family(tmp_path):
    model = random_design("DINOv3")
    with pytest.raises(ValueError, match="no place for a model with .*of family DINOv3"):
        weights.save(model, tmp_path / "a.npz", format="google")
    model.save(tmp_path / "a.keras")
    plain = models.VisionTransformer(**{**SIZES, "num_classes": 3})
    with pytest.raises(ValueError, match="the file has a model of family DINOv3"):
        weights.load(plain, tmp_path / "a.keras")


SIZES = {"image_size": (12, 16), "patch_size": 4, "hidden_size": 16, "num_layers": 2,
         "num_heads": 2, "mlp_dim": 24}  # fmt: skip


def test_the_license_of_dinov3_is_named_on_load():
    with pytest.warns(UserWarning, match="under the DINOv3 License"):
        vit_keras.open(FOLDER / "hf_dinov3")
    assert "DINOv3 License" in weights.describe(FOLDER / "hf_dinov3")["license_note"]
