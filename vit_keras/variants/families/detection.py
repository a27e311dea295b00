"""Families that find objects."""

from vit_keras.variants.families.family import (
    BICUBIC,
    BILINEAR,
    CLIP,
    IMAGENET,
    PAPERS,
    TI,
    B,
    Family,
    L,
    S,
)
from vit_keras.variants.rows import Variant

_EVERY = {"position_embedding_at": "every"}
_OWL_MODEL = {"pre_norm": True, "layer_norm_epsilon": 1e-5, "gelu": "quick", "num_classes": 512}
_LARGE = {"L/14": {"num_classes": 768}}

YOLOS = Family(
    name="YOLOS",
    title="You Only Look at One Sequence: Rethinking Transformer in Vision through "
    "Object Detection",
    paper=f"{PAPERS}2106.00666",
    license="Apache-2.0",
    function="YOLOS{}",
    sizes={"Ti/16": Variant(16, *TI), "S/16": Variant(16, *S), "B/16": Variant(16, *B)},
    arguments={
        "boxes": "tokens",
        "num_registers": 100,
        "num_classes": 91,
        "layer_norm_epsilon": 1e-12,
    },
    differences={"Ti/16": {"crop_to_patches": True}, "S/16": _EVERY, "B/16": _EVERY},
    pixels=(800, 1333),
    other_pixels={"S/16": (512, 864), "B/16": (800, 1344)},
    preprocessing={**IMAGENET, **BILINEAR},
)
OWL_VIT = Family(
    name="OWLViT",
    title="Simple Open-Vocabulary Object Detection with Vision Transformers",
    paper=f"{PAPERS}2205.06230",
    license="Apache-2.0",
    function="OWLViT{}",
    sizes={"B/32": Variant(32, *B), "B/16": Variant(16, *B), "L/14": Variant(14, *L)},
    arguments={**_OWL_MODEL, "boxes": "texts"},
    differences=_LARGE,
    pixels=768,
    other_pixels={"L/14": 840},
    preprocessing={**CLIP, **BICUBIC},
)
OWL_V2 = Family(
    name="OWLv2",
    title="Scaling Open-Vocabulary Object Detection",
    paper=f"{PAPERS}2306.09683",
    license="Apache-2.0",
    function="OWLv2{}",
    sizes={"B/16": Variant(16, *B), "L/14": Variant(14, *L)},
    arguments={**_OWL_MODEL, "boxes": "texts_objectness"},
    differences=_LARGE,
    pixels=960,
    other_pixels={"L/14": 1008},
    preprocessing={**CLIP, **BILINEAR},
)
FAMILIES = (YOLOS, OWL_VIT, OWL_V2)
