"""Families that were trained on pictures alone."""

from vit_keras.variants.families.family import (
    BICUBIC,
    BILINEAR,
    CLIP,
    CROP_7_8,
    CROP_ALL,
    HALF,
    IMAGENET,
    PAPERS,
    TI,
    B,
    Family,
    G,
    H,
    L,
    S,
)
from vit_keras.variants.rows import Variant

_ANTIALIAS = ("bicubic_antialias", "bilinear_half_pixel")
_OFFSET = ("bicubic_offset", "bilinear_half_pixel")
_MEAN_THEN_NORM = {"classifier": "gap_norm", "class_token": True}
_SWIGLU = {"mlp": "swiglu"}
_DINO_V2_SIZES = {
    "S/14": Variant(14, *S),
    "B/14": Variant(14, *B),
    "L/14": Variant(14, *L),
    "g/14": Variant(14, 1536, 40, 24, 4096),
}
_BEIT_MODEL = {
    **_MEAN_THEN_NORM,
    "position_embedding": "relative_2d",
    "qkv_bias": "qv",
    "layer_scale": 0.1,
    "num_classes": 1000,
}
_BEIT_SIZES = {"B/16": Variant(16, *B), "L/16": Variant(16, *L)}

DINO = Family(
    name="DINO",
    title="Emerging Properties in Self-Supervised Vision Transformers",
    paper=f"{PAPERS}2104.14294",
    license="Apache-2.0",
    function="DINO{}",
    sizes={
        "S/16": Variant(16, *S),
        "S/8": Variant(8, *S),
        "B/16": Variant(16, *B),
        "B/8": Variant(8, *B),
    },
    arguments={},
    preprocessing={**IMAGENET, **BICUBIC, **CROP_7_8},
    resizing=_OFFSET,
)
DINO_V2 = Family(
    name="DINOv2",
    title="DINOv2: Learning Robust Visual Features without Supervision",
    paper=f"{PAPERS}2304.07193",
    license="Apache-2.0",
    function="DINOv2{}",
    sizes=_DINO_V2_SIZES,
    arguments={"layer_scale": 1e-5},
    differences={"g/14": _SWIGLU},
    pixels=518,
    preprocessing={**IMAGENET, **BICUBIC, **CROP_7_8},
    resizing=_OFFSET,
)
DINO_V2_REG = Family(
    name="DINOv2",
    suffix="-reg",
    title="Vision Transformers Need Registers",
    paper=f"{PAPERS}2309.16588",
    license="Apache-2.0",
    function="DINOv2{}Reg",
    sizes=_DINO_V2_SIZES,
    arguments={"layer_scale": 1e-5, "num_registers": 4, "position_cover": "class"},
    differences={"g/14": _SWIGLU},
    pixels=518,
    preprocessing={**IMAGENET, **BICUBIC, **CROP_7_8},
    resizing=_ANTIALIAS,
)
DINO_V3 = Family(
    name="DINOv3",
    title="DINOv3",
    paper=f"{PAPERS}2508.10104",
    license="DINOv3 License",
    function="DINOv3{}",
    sizes={
        "S/16": Variant(16, *S),
        "S+/16": Variant(16, *S),
        "B/16": Variant(16, *B),
        "L/16": Variant(16, *L),
        "H+/16": Variant(16, 1280, 32, 20, 5120),
        "7B/16": Variant(16, 4096, 40, 32, 8192),
    },
    arguments={
        "position_embedding": "none",
        "num_registers": 4,
        "rope": {"base": 100.0, "centered": True},
        "layer_scale": 1e-5,
        "layer_norm_epsilon": 1e-5,
        "qkv_bias": "qv",
    },
    differences={
        "S+/16": _SWIGLU,
        "H+/16": _SWIGLU,
        "7B/16": {**_SWIGLU, "qkv_bias": "none"},
    },
    preprocessing={**IMAGENET, **BILINEAR},
)
MAE = Family(
    name="MAE",
    title="Masked Autoencoders Are Scalable Vision Learners",
    paper=f"{PAPERS}2111.06377",
    license="CC-BY-NC-4.0",
    function="MAE{}",
    sizes={"B/16": Variant(16, *B), "L/16": Variant(16, *L), "H/14": Variant(14, *H)},
    arguments={},
    preprocessing={**IMAGENET, **BICUBIC, **CROP_7_8},
)
I_JEPA = Family(
    name="IJEPA",
    title="Self-Supervised Learning from Images with a Joint-Embedding Predictive Architecture",
    paper=f"{PAPERS}2301.08243",
    license="CC-BY-NC-4.0",
    function="IJEPA{}",
    sizes={"H/14": Variant(14, *H), "H/16": Variant(16, *H), "g/16": Variant(16, *G)},
    arguments={"classifier": "gap"},
    other_pixels={"H/16": 448},
    preprocessing={**IMAGENET, **BICUBIC, **CROP_7_8},
)
BEIT = Family(
    name="BEiT",
    title="BEiT: BERT Pre-Training of Image Transformers",
    paper=f"{PAPERS}2106.08254",
    license="Apache-2.0",
    function="BEiT{}",
    sizes=_BEIT_SIZES,
    arguments=_BEIT_MODEL,
    differences={"L/16": {"layer_scale": 1e-5}},
    preprocessing={**HALF, **BICUBIC, "crop_fraction": 0.9},
    resizing=("bilinear_half_pixel", "bilinear_half_pixel"),
)
BEIT_V2 = Family(
    name="BEiTv2",
    title="BEiT v2: Masked Image Modeling with Vector-Quantized Visual Tokenizers",
    paper=f"{PAPERS}2208.06366",
    license="Apache-2.0",
    function="BEiTv2{}",
    sizes=_BEIT_SIZES,
    arguments=_BEIT_MODEL,
    differences={"L/16": {"layer_scale": 1e-5}},
    preprocessing={**IMAGENET, **BICUBIC, "crop_fraction": 0.9},
    resizing=("bilinear_half_pixel", "bilinear_half_pixel"),
)
EVA_02 = Family(
    name="EVA02",
    title="EVA-02: A Visual Representation for Neon Genesis",
    paper=f"{PAPERS}2303.11331",
    license="MIT",
    function="EVA02{}",
    sizes={
        "Ti/14": Variant(14, *TI[:3], 512),
        "S/14": Variant(14, *S[:3], 1024),
        "B/14": Variant(14, *B[:3], 2048),
        "L/14": Variant(14, *L[:3], 2730),
    },
    arguments={
        **_MEAN_THEN_NORM,
        **_SWIGLU,
        "qkv_bias": "qv",
        "rope": {"base": 10000.0, "reference": (16, 16)},
    },
    differences={"B/14": {"mlp_norm": True}, "L/14": {"mlp_norm": True}},
    pixels=336,
    other_pixels={"B/14": 448, "L/14": 448},
    preprocessing={**CLIP, **BICUBIC, **CROP_ALL},
    resizing=_ANTIALIAS,
)
FAMILIES = (DINO, DINO_V2, DINO_V2_REG, DINO_V3, MAE, I_JEPA, BEIT, BEIT_V2, EVA_02)
