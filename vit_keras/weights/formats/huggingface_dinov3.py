"""The names of transformers' DINOv3."""

import numpy as np

from vit_keras.layers import Rope
from vit_keras.layers.block_options import QKV_BIASES
from vit_keras.weights.formats.huggingface_type import ANY, ModelType
from vit_keras.weights.formats.tensor_names import TensorNames
from vit_keras.weights.formats.tensor_shapes import LAYER_SCALE

PLAIN = TensorNames(
    patches="embeddings.patch_embeddings",
    block="layer.{}.",
    norm_0="norm1",
    query="attention.q_proj",
    key="attention.k_proj",
    value="attention.v_proj",
    out="attention.o_proj",
    norm_2="norm2",
    dense_0="mlp.up_proj",
    dense_1="mlp.down_proj",
    gate="mlp.gate_proj",
    scale_0="layer_scale1.lambda1",
    scale_1="layer_scale2.lambda1",
    norm="norm",
    cls="embeddings.cls_token",
    registers="embeddings.register_tokens",
)
BIASES = ("query_bias", "key_bias", "value_bias")


def _design(names):
    return {"classifier": "token", "layer_scale": LAYER_SCALE, "rope": Rope(centered=True)}


def _says(fields):
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


def _write(arch):
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


def _fillers(arch):
    none = {PLAIN.registers: np.zeros((1, 0, arch.hidden_size), "float32")}
    mask = {"embeddings.mask_token": np.zeros((1, 1, arch.hidden_size), "float32")}
    return mask if arch.options.num_registers else {**mask, **none}


TYPES = (
    ModelType(
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
        design=_design,
        says=_says,
        holds={
            "qkv_bias": ANY,
            "mlp": ANY,
            "layer_scale": ANY,
            "num_registers": ANY,
            "rope": ANY,
        },
        needs=("layer_scale", "rope"),
        positions=("none",),
        processor="DINOv3ViTImageProcessor",
        write=_write,
        fillers=_fillers,
    ),
)
