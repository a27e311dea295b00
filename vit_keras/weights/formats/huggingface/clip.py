"""The names of the image towers of transformers' CLIP, SigLIP and SigLIP 2."""

import dataclasses

import numpy as np

from vit_keras.weights.formats.huggingface.vit import COMMON, ModelType
from vit_keras.weights.formats.tensor_names import TensorNames, pairs

MLPS = (("boxes", "box_head"), ("objectness", "objectness_head"))  # of OWL-ViT
CLIP = TensorNames.of(
    "patches=embeddings.patch_embedding cls=embeddings.class_embedding "
    "positions=embeddings.position_embedding.weight pre_norm=pre_layrnorm "
    "block=encoder.layers.{}. norm_0=layer_norm1 query=self_attn.q_proj key=self_attn.k_proj "
    "value=self_attn.v_proj out=self_attn.out_proj norm_2=layer_norm2 dense_0=mlp.fc1 "
    "dense_1=mlp.fc2 norm=post_layernorm head=classifier projection=visual_projection.weight",
    token_axes=1,
    position_axes=2,
)
OWL = CLIP.replaced(
    pre_norm="pre_layernorm",
    boxes={
        "head_norm": "layer_norm",
        "head": "class_head.dense0",
        "head_shift": "class_head.logit_shift",
        "head_scale": "class_head.logit_scale",
        **{f"head_{part}_mlp_{i}": f"{theirs}.dense{i}" for part, theirs in MLPS for i in range(2)},
        **{f"head_{part}": f"{theirs}.dense2" for part, theirs in MLPS},
    },
    # The heads of boxes do not read the projection to embeddings of texts.
    spellings=[pairs("head=class_head.dense0 projection=")],
)
SIGLIP = CLIP.replaced(
    "cls= pre_norm= projection= pool_probe=head.probe pool_qkv=head.attention.in_proj_ "
    "pool_out=head.attention.out_proj pool_norm=head.layernorm pool_dense_0=head.mlp.fc1 "
    "pool_dense_1=head.mlp.fc2"
)
NAFLEX = SIGLIP.replaced(linear_patches=True)
FIRST = ("encoder.layers.0.self_attn.q_proj.weight", "embeddings.patch_embedding.weight")


def _clip(names):
    """Returns a classifier on the mean of the patches, not normalized, or on the class token."""
    if f"{CLIP.head}.weight" in names:
        return {"classifier": "gap", "class_token": True, "final_norm": False}
    return {"classifier": "token"}


def _owl(names):
    if f"{OWL.boxes['head']}.weight" not in names:
        return {"classifier": "token", "boxes": None}
    has_objects = f"{OWL.boxes['head_objectness']}.weight" in names
    return {"classifier": "token", "boxes": "texts_objectness" if has_objects else "texts"}


def _siglip(names):
    """Returns a classifier on the pool or, with a head, on the mean of the normalized patches."""
    pools = SIGLIP.pool_probe in names and f"{SIGLIP.head}.weight" not in names
    return {"classifier": "map" if pools else "gap"}


def _clip_fillers(arch):
    if arch.options.final_norm:
        return {}
    width = arch.hidden_size
    return {f"{CLIP.norm}.weight": np.ones(width), f"{CLIP.norm}.bias": np.zeros(width)}


def _write_clip(arch):
    projection = arch.num_classes if not arch.options.head_use_bias else None
    return {} if projection is None else {"projection_dim": projection}


SIGLIP_TYPE = ModelType(
    name="siglip_vision_model",
    marks=FIRST,
    names=SIGLIP,
    classes={("map", ""): "SiglipVisionModel"},
    fields={**COMMON, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
    design=_siglip,
    says=lambda fields: {"qkv_bias": "all", "map_mlp_dim": None},
    processor="SiglipImageProcessor",
    base="vision_model.",
    square=True,
)
CLIP_TYPE = ModelType(
    name="clip_vision_model",
    marks=(*FIRST, CLIP.cls),
    names=CLIP,
    classes={
        ("token", ""): "CLIPVisionModel",
        ("token", "projection"): "CLIPVisionModelWithProjection",
        ("gap", "classifier"): "CLIPForImageClassification",
    },
    fields={**COMMON, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5},
    design=_clip,
    says=lambda fields: {"qkv_bias": "all", "pre_norm": True},
    processor="CLIPImageProcessor",
    base="vision_model.",
    square=True,
    write=_write_clip,
    fillers=_clip_fillers,
)
OWL_TYPE = dataclasses.replace(
    CLIP_TYPE,
    name="owlvit_vision_model",
    marks=(*CLIP_TYPE.marks, f"{OWL.pre_norm}.weight"),
    names=OWL,
    classes={},  # they need a text tower; a model without boxes is written as a CLIP
    design=_owl,
    processor="OwlViTImageProcessor",
)
TYPES = (
    OWL_TYPE,
    dataclasses.replace(OWL_TYPE, name="owlv2_vision_model", processor="Owlv2ImageProcessor"),
    CLIP_TYPE,
    SIGLIP_TYPE,
    dataclasses.replace(
        SIGLIP_TYPE,
        name="siglip2_vision_model",
        names=NAFLEX,
        classes={("map", ""): "Siglip2VisionModel"},
        rule=lambda fields: "bilinear_antialias",
        processor="Siglip2ImageProcessor",
        write=lambda arch: {"num_patches": arch.num_positions},
    ),
)
