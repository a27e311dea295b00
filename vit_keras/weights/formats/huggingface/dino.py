"""The names of transformers' DINOv2, with and without registers, and DINOv3."""

import dataclasses

import numpy as np

from vit_keras.layers import Rope
from vit_keras.layers.block_options import QKV_BIASES
from vit_keras.weights.formats.huggingface.model_type import ANY, COMMON, ModelType
from vit_keras.weights.formats.huggingface.vit import NAMES
from vit_keras.weights.formats.tensor_names import LAYER_SCALE, TensorNames

DINOV2 = NAMES.replaced(
    "registers=embeddings.register_tokens norm_0=norm1 scale_0=layer_scale1.lambda1 "
    "norm_2=norm2 dense_0=mlp.fc1 dense_1=mlp.fc2 packed=mlp.weights_in "
    "scale_1=layer_scale2.lambda1 pre_logits="
)
# The names of the last layer of SwiGLU on disk, and of all three layers in memory.
PACKED = dataclasses.replace(DINOV2, dense_1="mlp.weights_out")
IN_MEMORY = dataclasses.replace(
    DINOV2, packed="", gate="mlp.gate_proj", dense_0="mlp.up_proj", dense_1="mlp.down_proj"
)
FIRST = ("encoder.layer.0.norm1.weight",)


def _spelling(row, names):
    for swiglu, mark in ((PACKED, PACKED.packed), (IN_MEMORY, IN_MEMORY.gate)):
        if row.of_block(0, f"{mark}.weight") in names:
            return swiglu
    return row


def _design(names):
    """The classifier reads the class token and the mean of the patches."""
    classifier = "token_gap" if f"{DINOV2.head}.weight" in names else "token"
    return {"classifier": classifier, "layer_scale": LAYER_SCALE}


def _says(fields):
    return {
        "qkv_bias": "all" if fields["qkv_bias"] else "none",
        "mlp": "swiglu" if fields["use_swiglu_ffn"] else "gelu",
        "num_registers": fields["num_register_tokens"],
    }


def hidden_units(width: int, ratio: int, swiglu: bool) -> int:
    """Returns the hidden units of an MLP: for SwiGLU two thirds, rounded up to a multiple of 8."""
    units = int(width * ratio)
    return (int(units * 2 / 3) + 7) // 8 * 8 if swiglu else units


def _write(arch):
    swiglu = arch.options.mlp == "swiglu"
    ratios = [r for r in range(1, 65) if hidden_units(arch.hidden_size, r, swiglu) == arch.mlp_dim]
    if not ratios:
        raise ValueError(
            "DINOv2's `mlp_dim` must be a whole multiple of `hidden_size`, of which SwiGLU takes "
            f"two thirds, rounded up to a multiple of 8. Received: hidden_size={arch.hidden_size}, "
            f"mlp_dim={arch.mlp_dim}, mlp={arch.options.mlp!r}. Save it as .keras or .weights.h5"
        )
    fields = {
        "mlp_ratio": 4 if 4 in ratios else ratios[0],
        "use_swiglu_ffn": swiglu,
        "qkv_bias": arch.options.qkv_bias == "all",
        "drop_path_rate": 0.0,
    }
    if arch.options.num_registers:
        fields["num_register_tokens"] = arch.options.num_registers
    return fields


def _fillers(arch):
    return {"embeddings.mask_token": np.zeros((1, arch.hidden_size), "float32")}


WITHOUT = ModelType(
    name="dinov2",
    marks=FIRST,
    names=DINOV2,
    classes={
        ("token", ""): "Dinov2Model",
        ("token_gap", "classifier"): "Dinov2ForImageClassification",
    },
    fields={**COMMON, "layer_norm_eps": 1e-6, "use_swiglu_ffn": False, "num_register_tokens": 0},
    design=_design,
    says=lambda fields: _says({**fields, "num_register_tokens": 0}),
    holds={"qkv_bias": ("all", "none"), "mlp": ANY, "layer_scale": ANY},
    needs=("layer_scale",),
    processor="BitImageProcessor",
    base="dinov2.",
    square=True,
    spelling=_spelling,
    write=_write,
    fillers=_fillers,
)
REGISTERS = dataclasses.replace(
    WITHOUT,
    name="dinov2_with_registers",
    marks=(*FIRST, DINOV2.registers),
    classes={
        ("token", ""): "Dinov2WithRegistersModel",
        ("token_gap", "classifier"): "Dinov2WithRegistersForImageClassification",
    },
    fields={**WITHOUT.fields, "num_register_tokens": 4},
    says=_says,
    holds={**WITHOUT.holds, "num_registers": ANY, "position_cover": ("class",)},
    rule=lambda fields: "bicubic_antialias",
    base="dinov2_with_registers.",
)


PLAIN = TensorNames.of(
    "patches=embeddings.patch_embeddings cls=embeddings.cls_token "
    "registers=embeddings.register_tokens block=layer.{}. norm_0=norm1 query=attention.q_proj "
    "key=attention.k_proj value=attention.v_proj out=attention.o_proj "
    "scale_0=layer_scale1.lambda1 norm_2=norm2 gate=mlp.gate_proj dense_0=mlp.up_proj "
    "dense_1=mlp.down_proj scale_1=layer_scale2.lambda1 norm=norm",
)
BIASES = ("query_bias", "key_bias", "value_bias")


def _design_dinov3(names):
    return {"classifier": "token", "layer_scale": LAYER_SCALE, "rope": Rope(centered=True)}


def _says_dinov3(fields):
    held = tuple(name.removesuffix("_bias") for name in BIASES if fields[name])
    kinds = {projections: kind for kind, projections in QKV_BIASES.items()}
    if held not in kinds:
        raise ValueError(
            "All projections must have a bias, or all but the keys', or none. Received: "
            + ", ".join(f"{name}={fields[name]}" for name in BIASES)
        )
    return {
        "qkv_bias": kinds[held],
        "mlp": "swiglu" if fields["use_gated_mlp"] else "gelu",
        "num_registers": fields["num_register_tokens"],
        "rope": Rope(base=fields["rope_theta"], centered=True),
    }


def _write_dinov3(arch):
    held = QKV_BIASES[arch.options.qkv_bias]
    gated = arch.options.mlp == "swiglu"
    return {
        **{name: name.removesuffix("_bias") in held for name in BIASES},
        **({"hidden_act": "silu"} if gated else {}),
        "use_gated_mlp": gated,
        "num_register_tokens": arch.options.num_registers,
        "rope_theta": arch.options.rope.base,
        "proj_bias": True,
        "mlp_bias": True,
        "drop_path_rate": 0.0,
    }


def _fillers_dinov3(arch):
    none = {PLAIN.registers: np.zeros((1, 0, arch.hidden_size), "float32")}
    mask = {"embeddings.mask_token": np.zeros((1, 1, arch.hidden_size), "float32")}
    return mask if arch.options.num_registers else {**mask, **none}


DINOV3 = ModelType(
    name="dinov3_vit",
    marks=("layer.0.attention.q_proj.weight", "embeddings.patch_embeddings.weight"),
    names=PLAIN,
    classes={("token", ""): "DINOv3ViTModel"},
    fields={
        "num_attention_heads": 6,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "rope_theta": 100.0,
        "query_bias": True,
        "key_bias": False,
        "value_bias": True,
        "proj_bias": True,
        "mlp_bias": True,
        "use_gated_mlp": False,
        "num_register_tokens": 0,
    },
    design=_design_dinov3,
    says=_says_dinov3,
    holds={"qkv_bias": ANY, "mlp": ANY, "layer_scale": ANY, "num_registers": ANY, "rope": ANY},
    needs=("layer_scale", "rope"),
    positions=("none",),
    processor="DINOv3ViTImageProcessor",
    write=_write_dinov3,
    fillers=_fillers_dinov3,
)
TYPES = (REGISTERS, WITHOUT, DINOV3)
