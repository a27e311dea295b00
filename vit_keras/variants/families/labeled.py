"""Families that were trained on labeled pictures."""

from vit_keras.variants.families.family import (
    BICUBIC,
    CROP_7_8,
    CROP_ALL,
    HALF,
    IMAGENET,
    PAPERS,
    TI,
    B,
    Family,
    H,
    L,
    M,
    S,
)
from vit_keras.variants.rows import Variant

_CLASSES = {"num_classes": 1000}
_DEIT_SIZES = {"Ti/16": Variant(16, *TI), "S/16": Variant(16, *S), "B/16": Variant(16, *B)}
_ANTIALIAS = ("bicubic_antialias", "bilinear_half_pixel")

DEIT = Family(
    name="DeiT",
    title="Training Data-Efficient Image Transformers & Distillation Through Attention",
    paper=f"{PAPERS}2012.12877",
    license="Apache-2.0",
    function="DeiT{}",
    sizes=_DEIT_SIZES,
    arguments=_CLASSES,
    preprocessing={**IMAGENET, **BICUBIC, **CROP_7_8},
)
DEIT_DISTILLED = Family(
    name="DeiT",
    suffix="-distilled",
    title=DEIT.title,
    paper=DEIT.paper,
    license="Apache-2.0",
    function="DeiT{}Distilled",
    sizes=_DEIT_SIZES,
    arguments={**_CLASSES, "classifier": "distilled"},
    preprocessing={**IMAGENET, **BICUBIC, **CROP_7_8},
)
DEIT_III = Family(
    name="DeiTIII",
    title="DeiT III: Revenge of the ViT",
    paper=f"{PAPERS}2204.07118",
    license="Apache-2.0",
    function="DeiTIII{}",
    sizes={
        "S/16": Variant(16, *S),
        "M/16": Variant(16, *M),
        "B/16": Variant(16, *B),
        "L/16": Variant(16, *L),
        "H/14": Variant(14, *H),
    },
    arguments={**_CLASSES, "layer_scale": 1e-4, "position_cover": "patches"},
    preprocessing={**IMAGENET, **BICUBIC, **CROP_ALL},
)
REGISTERS = Family(
    name="ViT-reg4",
    title="Vision Transformers Need Registers",
    paper=f"{PAPERS}2309.16588",
    license="Apache-2.0",
    function="ViTReg4{}",
    sizes={
        "M/16": Variant(16, *M),
        "betwixt/16": Variant(16, 640, 12, 10, 2560),
        "B/16": Variant(16, *B),
        "So150m/16": Variant(16, 896, 18, 14, 2304),
    },
    arguments={
        **_CLASSES,
        "classifier": "gap_norm",
        "num_registers": 4,
        "position_cover": "patches",
        "layer_scale": 1e-5,
    },
    differences={
        "B/16": {"layer_scale": None},
        "So150m/16": {"classifier": "map", "position_cover": "all", "layer_scale": None},
    },
    pixels=256,
    preprocessing={**HALF, **BICUBIC, "crop_fraction": 0.95},
    resizing=_ANTIALIAS,
)
FLEXIVIT = Family(
    name="FlexiViT",
    title="FlexiViT: One Model for All Patch Sizes",
    paper=f"{PAPERS}2212.08013",
    license="Apache-2.0",
    function="FlexiViT{}",
    sizes={"S/16": Variant(16, *S), "B/16": Variant(16, *B), "L/16": Variant(16, *L)},
    arguments={**_CLASSES, "position_cover": "patches"},
    pixels=240,
    preprocessing={**HALF, **BICUBIC, "crop_fraction": 0.95},
    resizing=("bilinear_antialias", "bilinear_half_pixel"),
)
FAMILIES = (DEIT, DEIT_DISTILLED, DEIT_III, REGISTERS, FLEXIVIT)
