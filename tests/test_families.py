"""The table of families against published counts and other projects' names."""

import functools
import re

import pytest

from tests.helpers import ROOT
from vit_keras import applications, variants
from vit_keras.inspection import abstract_model, flops
from vit_keras.variants import families

pytestmark = pytest.mark.once

# Parameters that transformers, timm, OpenCLIP and the papers' code count: with the projection of
# CLIP and OpenCLIP, with the classifier of DeiT and BEiT, and without any head elsewhere.
PUBLISHED = {
    "CLIP-B/32": 87_849_216,
    "CLIP-B/16": 86_192_640,
    "CLIP-L/14": 303_966_208,
    "CLIP-L/14-336": 304_293_888,
    "OpenCLIP-H/14": 632_076_800,
    "OpenCLIP-bigG/14": 1_844_907_264,
    "DINO-B/16": 85_798_656,
    "DINOv2-S/14": 22_056_192,
    "DINOv2-B/14": 86_579_712,
    "DINOv2-L/14": 304_367_616,
    "DINOv2-g/14": 1_136_479_232,
    "SigLIP-B/16": 92_884_224,
    "SigLIP-L/16": 315_956_224,
    "SigLIP-So400m/14": 427_680_704,
    "SigLIP2-B/32": 94_552_320,
    "SigLIP2-B/16": 92_884_224,
    "SigLIP2-L/16": 315_956_224,
    "SigLIP2-So400m/14": 427_680_704,
    "SigLIP2-So400m/16": 427_888_064,
    "SigLIP2-g-opt/16": 1_163_168_256,
    "DeiT-Ti/16": 5_717_416,
    "DeiT-S/16": 22_050_664,
    "DeiT-B/16": 86_567_656,
    "DeiT-Ti/16-distilled": 5_910_800,
    "DeiT-S/16-distilled": 22_436_432,
    "DeiT-B/16-distilled": 87_338_192,
    "DeiTIII-S/16": 22_059_496,
    "DeiTIII-M/16": 38_849_512,
    "DeiTIII-B/16": 86_585_320,
    "DeiTIII-L/16": 304_374_760,
    "DeiTIII-H/14": 632_126_440,
    "MAE-B/16": 85_798_656,
    "MAE-L/16": 303_301_632,
    "MAE-H/14": 630_764_800,
    "BEiT-B/16": 86_530_984,
    "BEiT-L/16": 304_430_568,
    "BEiTv2-B/16": 86_530_984,
    "EVA02-Ti/14": 5_563_584,
    "EVA02-S/14": 21_744_000,
    "EVA02-B/14": 86_348_544,
    "EVA02-L/14": 304_055_232,
    "IJEPA-H/14": 630_762_240,
    "IJEPA-H/16": 631_668_480,
    "IJEPA-g/16": 1_011_368_576,
    "YOLOS-Ti/16": 6_488_736,
    "YOLOS-S/16": 30_684_768,
    "YOLOS-B/16": 127_798_368,
    "OWLViT-B/32": 89_441_798,  # without the text tower and the projections, as OWLv2
    "OWLViT-L/14": 309_498_630,
    "OWLv2-B/16": 91_176_711,
}
# The same without the head that the variant has.
WITHOUT_HEAD = {
    "ViT-reg4-betwixt/16": 59_757_440,
    "ViT-reg4-B/16": 85_846_272,
    "ViT-reg4-So150m/16": 140_584_064,
    "FlexiViT-S/16": 21_676_416,
    "FlexiViT-B/16": 85_820_160,
    "FlexiViT-L/16": 303_330_304,
    "PE-Core-B/16": 92_886_528,
    "PE-Core-L/14": 316_102_656,
    "PE-Core-G/14": 1_880_066_560,
}
# transformers' count, which includes a mask token of the width D that the model never reads.
WITH_MASK_TOKEN = {
    "DINOv2-S/14": 22_056_576,
    "DINOv2-S/14-reg": 22_056_192 + 5 * 384,
    "DINOv2-B/14-reg": 86_579_712 + 5 * 768,
    "DINOv2-L/14-reg": 304_367_616 + 5 * 1024,
    "DINOv3-S/16": 21_596_544,
    "DINOv3-S+/16": 28_692_864,
    "DINOv3-B/16": 85_660_416,
    "DINOv3-L/16": 303_129_600,
    "DINOv3-H+/16": 840_592_640,
    "DINOv3-7B/16": 6_716_035_072,
}
OTHER_SIZES = {
    ("SigLIP-B/16", 384): 93_176_064,
    ("SigLIP-So400m/14", 384): 428_225_600,  # 27 x 27 patches; 6 pixels are left out
    ("SigLIP2-B/32", 256): 94_552_320,
}


@functools.cache
def count(name, **arguments):
    return abstract_model(name, **arguments).count_params()


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name):
    assert count(name) == PUBLISHED[name]


@pytest.mark.parametrize("name", WITHOUT_HEAD)
def test_parameters_without_the_head_are_the_published_ones(name):
    assert count(name, num_classes=None) == WITHOUT_HEAD[name]


@pytest.mark.parametrize("name", WITH_MASK_TOKEN)
def test_transformers_counts_a_mask_token_besides(name):
    assert count(name) + variants.get(name).hidden_size == WITH_MASK_TOKEN[name]


def test_timm_folds_the_position_of_the_class_token_into_the_token():
    for size, width in (("S/14", 384), ("g/14", 1536)):
        timm = PUBLISHED[f"DINOv2-{size}"] + 3 * width  # 4 registers less a position
        assert count(f"DINOv2-{size}-reg") - width == timm


@pytest.mark.parametrize(("name", "size"), OTHER_SIZES)
def test_parameters_at_other_sizes_are_the_published_ones(name, size):
    assert count(name, image_size=size) == OTHER_SIZES[name, size]


def test_every_family_has_a_published_count():
    counted = {*PUBLISHED, *WITHOUT_HEAD, *WITH_MASK_TOKEN}
    of = lambda name: variants.get(name).family
    assert {of(name) for name in counted} == families.FAMILIES.keys()


def test_a_page_lists_every_constructor_with_its_parameters():
    text = (ROOT / "docs" / "which-vit.md").read_text()
    listed = dict(re.findall(r"`(\w+)` (\d[\d,]*\d)(?=,| \|)", text))
    assert listed.keys() == applications.OF_FAMILIES.keys()
    for name, variant in applications.OF_FAMILIES.items():
        assert int(listed[name].replace(",", "")) == count(variant), name


def test_heads_have_the_published_widths():
    widths = {"OpenCLIP-H/14": 80, "OpenCLIP-g/14": 88, "OpenCLIP-bigG/14": 104,
              "DINOv2-g/14": 64, "SigLIP-So400m/14": 72, "DINOv3-7B/16": 128}  # fmt: skip
    for name, width in widths.items():
        row = variants.get(name)
        assert row.hidden_size == width * row.num_heads


def test_costs_are_counted_at_the_published_size():
    costs = flops("DINOv2-S/14", num_classes=None)
    assert costs.image_size == (518, 518) and costs.params == PUBLISHED["DINOv2-S/14"]
    tokens, width = 37 * 37 + 1, 384
    block = tokens * 12 * width * width + 2 * tokens * tokens * width
    assert costs.macs == 12 * block + (tokens - 1) * 14 * 14 * 3 * width


SPELLINGS = {
    "facebook/dinov2-small": "DINOv2-S/14",
    "dinov2_vits14": "DINOv2-S/14",
    "dinov2_vitl14_reg": "DINOv2-L/14-reg",
    "vit_giant_patch14_dinov2.lvd142m": "DINOv2-g/14",
    "vit_base_patch14_reg4_dinov2": "DINOv2-B/14-reg",
    "facebook/dinov2-with-registers-base": "DINOv2-B/14-reg",
    "facebook/dinov3-vits16plus-pretrain-lvd1689m": "DINOv3-S+/16",
    "vit_huge_plus_patch16_dinov3": "DINOv3-H+/16",
    "facebook/dinov3-vit7b16-pretrain-lvd1689m": "DINOv3-7B/16",
    "vit_small_patch8_224.dino": "DINO-S/8",
    "facebook/dino-vitb16": "DINO-B/16",
    "openai/clip-vit-base-patch32": "CLIP-B/32",
    "openai/clip-vit-large-patch14": "CLIP-L/14",
    "laion/CLIP-ViT-H-14-laion2B-s32B-b79K": "OpenCLIP-H/14",
    "google/siglip-so400m-patch14-384": "SigLIP-So400m/14",
    "google/siglip2-base-patch16-224": "SigLIP2-B/16",
    "vit_giantopt_patch16_siglip_256.v2_webli": "SigLIP2-g-opt/16",
    "deit3_medium_patch16_224.fb_in1k": "DeiTIII-M/16",
    "facebook/deit-tiny-distilled-patch16-224": "DeiT-Ti/16-distilled",
    "deit_small_patch16_224": "DeiT-S/16",
    "vit_large_patch16_224.mae": "MAE-L/16",
    "facebook/vit-mae-huge": "MAE-H/14",
    "microsoft/beit-base-patch16-224": "BEiT-B/16",
    "beitv2_large_patch16_224": "BEiTv2-L/16",
    "eva02_base_patch14_448": "EVA02-B/14",
    "facebook/ijepa_vith14_1k": "IJEPA-H/14",
    "flexivit_small": "FlexiViT-S/16",
    "vit_pe_core_gigantic_patch14_448": "PE-Core-G/14",
    "vit_betwixt_patch16_reg4_gap_256": "ViT-reg4-betwixt/16",
    "dinov2-s/14": "DINOv2-S/14",
    "DINOv2-B/16": "DINOv2-B/14",
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_names_of_other_projects_are_answered_with_ours(name):
    with pytest.raises(ValueError, match=r"Received: variant=.* Did you mean ") as error:
        variants.get(name)
    assert variants.nearest(name)[0] == SPELLINGS[name]
    assert f"Did you mean '{SPELLINGS[name]}'" in str(error.value)
