"""Tiny models of every family's design, which tests of whole models share."""

import numpy as np

from tests.helpers import randomize
from vit_keras.models import VisionTransformer

SIZES = {"image_size": (12, 16), "patch_size": 4, "hidden_size": 16, "num_layers": 2}
SIZES |= {"num_heads": 2, "mlp_dim": 24, "num_classes": 3, "layer_norm_epsilon": 1e-3}
_EVA_ROPE = {"base": 1e4, "reference": (4, 4)}
_REGISTERS = {"num_registers": 4, "layer_scale": 0.5}
_GATED = {"mlp": "swiglu", "qkv_bias": "qv"}
_MEAN = {"classifier": "gap_norm", "class_token": True}
_POOL = {"classifier": "map", "class_token": True, "pool_all_tokens": True, "map_heads": 4}
DESIGNS = {
    "CLIP": {"pre_norm": True, "head_use_bias": False, "gelu": "quick"},
    "DINOv2": {"classifier": "token_gap", "position_cover": "class", **_REGISTERS},
    "DINOv3": {"position_embedding": "none", "rope": {"centered": True}, **_REGISTERS, **_GATED},
    "SigLIP": {"classifier": "map", "crop_to_patches": True, "image_size": (14, 17)},
    "DeiT": {"classifier": "distilled"},
    "DeiT III": {"layer_scale": 0.5, "position_cover": "patches"},
    "MAE": {**_MEAN},
    "BEiT": {**_MEAN, "position_embedding": "relative_2d", "qkv_bias": "qv", "layer_scale": 0.5},
    "EVA-02": {"rope": _EVA_ROPE, **_GATED, "mlp_norm": True, "attention_norm": True},
    "registers": {"classifier": "gap_norm", "num_registers": 4, "position_cover": "patches"},
    "PE": {"pre_norm": True, **_POOL, "rope": {"base": 1e4, "offset": 1.0}},
    "mixed rotary": {"position_embedding": "none", "rope": {"mixed": True}, "classifier": "gap"},
    "ViTDet": {"classifier": "token_gap", "window_size": 2, "global_blocks": (1,)},
    "ViT-22B": {"parallel": True, "qk_norm": True, "norm": "rms", "qkv_bias": "none"},
}


def design(name: str, **arguments):
    """A model of a design with initial weights from a seed."""
    return VisionTransformer(**{**SIZES, **DESIGNS[name], "seed": 3, **arguments})


def random_design(name: str, **arguments):
    """A model of a design with random weights, the same on every backend."""
    return randomize(design(name, **arguments), np.random.default_rng(4))


def images_for(model, count=2, seed=5):
    """Random images for a model."""
    shape = (count, *model.input_shape[1:])
    return np.random.default_rng(seed).normal(size=shape).astype("float32")
