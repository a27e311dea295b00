"""Families that were trained on pictures with texts; their text towers are left out."""

from vit_keras.variants.families.family import (
    BICUBIC,
    BILINEAR,
    CLIP,
    CROP_ALL,
    HALF,
    PAPERS,
    SO400M,
    B,
    Family,
    G,
    H,
    L,
)
from vit_keras.variants.rows import Variant

_CLIP_MODEL = {"pre_norm": True, "layer_norm_epsilon": 1e-5, "head_use_bias": False}
_SIGLIP_MODEL = {"classifier": "map", "gelu": "tanh"}
_PE_MODEL = {
    "classifier": "map",
    "map_heads": 8,
    "pool_all_tokens": True,
    "pre_norm": True,
    "layer_norm_epsilon": 1e-5,
    "head_use_bias": False,
}
_PE_ROPE = {"base": 10000.0}
_CROP = {"crop_to_patches": True}

CLIP_FAMILY = Family(
    name="CLIP",
    title="Learning Transferable Visual Models From Natural Language Supervision",
    paper=f"{PAPERS}2103.00020",
    license="MIT",
    function="CLIPViT{}",
    sizes={
        "B/32": Variant(32, *B),
        "B/16": Variant(16, *B),
        "L/14": Variant(14, *L),
        "L/14-336": Variant(14, *L),
    },
    arguments={**_CLIP_MODEL, "gelu": "quick", "num_classes": 512},
    differences={"L/14": {"num_classes": 768}, "L/14-336": {"num_classes": 768}},
    other_pixels={"L/14-336": 336},
    preprocessing={**CLIP, **BICUBIC, **CROP_ALL},
)
OPEN_CLIP = Family(
    name="OpenCLIP",
    title="Reproducible Scaling Laws for Contrastive Language-Image Learning",
    paper=f"{PAPERS}2212.07143",
    license="MIT",
    function="OpenCLIPViT{}",
    sizes={
        "B/32": Variant(32, *B),
        "B/16": Variant(16, *B),
        "L/14": Variant(14, *L),
        "H/14": Variant(14, *H),
        "g/14": Variant(14, *G),
        "bigG/14": Variant(14, 1664, 48, 16, 8192),
    },
    arguments={**_CLIP_MODEL, "gelu": "exact", "num_classes": 512},
    differences={
        "L/14": {"num_classes": 768},
        "H/14": {"num_classes": 1024},
        "g/14": {"num_classes": 1024},
        "bigG/14": {"num_classes": 1280},
    },
    preprocessing={**CLIP, **BICUBIC, **CROP_ALL},
    resizing=("bicubic_antialias", "bilinear_half_pixel"),
)
SIGLIP = Family(
    name="SigLIP",
    title="Sigmoid Loss for Language Image Pre-Training",
    paper=f"{PAPERS}2303.15343",
    license="Apache-2.0",
    function="SigLIP{}",
    sizes={
        "B/16": Variant(16, *B),
        "L/16": Variant(16, *L),
        "So400m/14": Variant(14, *SO400M),
    },
    arguments=_SIGLIP_MODEL,
    differences={"So400m/14": _CROP},
    other_pixels={"L/16": 256},
    preprocessing={**HALF, **BICUBIC},
)
SIGLIP_2 = Family(
    name="SigLIP2",
    title="SigLIP 2: Multilingual Vision-Language Encoders with Improved Semantic Understanding, "
    "Localization, and Dense Features",
    paper=f"{PAPERS}2502.14786",
    license="Apache-2.0",
    function="SigLIP2{}",
    sizes={
        "B/32": Variant(32, *B),
        "B/16": Variant(16, *B),
        "L/16": Variant(16, *L),
        "So400m/14": Variant(14, *SO400M),
        "So400m/16": Variant(16, *SO400M),
        "g-opt/16": Variant(16, 1536, 40, 16, 6144),
    },
    arguments=_SIGLIP_MODEL,
    differences={"So400m/14": _CROP},
    pixels=256,
    other_pixels={"B/16": 224, "So400m/14": 224},
    preprocessing={**HALF, **BILINEAR},
)
PERCEPTION_ENCODER = Family(
    name="PE-Core",
    title="Perception Encoder: The best visual embeddings are not at the output of the network",
    paper=f"{PAPERS}2504.13181",
    license="Apache-2.0",
    function="PECore{}",
    sizes={
        "B/16": Variant(16, *B),
        "L/14": Variant(14, *L),
        "G/14": Variant(14, 1536, 50, 16, 8960),
    },
    arguments={
        **_PE_MODEL,
        "class_token": True,
        "rope": {**_PE_ROPE, "offset": 1.0},
        "num_classes": 1024,
    },
    differences={
        "G/14": {
            "class_token": False,
            "rope": _PE_ROPE,
            "map_mlp_dim": 6144,
            "num_classes": 1280,
        }
    },
    other_pixels={"L/14": 336, "G/14": 448},
    preprocessing={**HALF, **BILINEAR},
    resizing=("bilinear_half_pixel", "bilinear_half_pixel"),
)
FAMILIES = (CLIP_FAMILY, OPEN_CLIP, SIGLIP, SIGLIP_2, PERCEPTION_ENCODER)
