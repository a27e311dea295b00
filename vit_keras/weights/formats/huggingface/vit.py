"""One row for each of transformers' model types: ViT, DeiT, BEiT, YOLOS, I-JEPA, DINO and so on."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from vit_keras.layers import Rope
from vit_keras.layers.common import QKV_BIASES
from vit_keras.weights.formats.tensor_names import LAYER_SCALE, TensorNames

# Defaults that most of the configuration classes share.
COMMON = {"num_attention_heads": 12, "hidden_act": "gelu", "qkv_bias": True}


@dataclasses.dataclass(frozen=True)
class ModelType:
    """One of transformers' model types.

    Attributes:
        name: The value of `model_type` in `config.json`.
        marks: Canonical names that identify its files without a configuration.
        names: The names of its tensors.
        classes: Maps the classifier's input and kind ("", "classifier" or "projection") to the name
            of the class for such a model.
        fields: The defaults of the fields of its configuration.
        design: Takes the canonical names of a file; returns the arguments of `VisionTransformer`
            that the type or the presence of tensors decides.
        says: Takes the fields of the configuration; returns the arguments that they determine.
        holds: The options that its files can hold. Others must have their defaults.
        positions: The kinds of position embeddings.
        covers: The tokens that positions may cover, as in `ViTOptions.position_cover`.
        rule: Takes the fields of the configuration; returns the rule for resizing positions.
        processor: The name of its image processor.
        base: The prefix of tensors in classes with a head.
        outside: The prefixes of tensors without `base`.
        whole: The model type of a configuration with this one as `vision_config`.
        square: Whether its configuration has one side for images and one for patches.
        spelling: Takes `names` and the names in a file; returns the row for the file's spelling.
        write: Takes an architecture; returns the type's special fields of the configuration.
        fillers: Takes an architecture; returns `{name: array}`, tensors that transformers requires
            although they have no effect.
    """

    name: str
    marks: tuple[str, ...]
    names: TensorNames
    classes: Mapping[tuple[str, str], str]
    fields: Mapping[str, Any]
    design: Callable[[set[str]], dict]
    says: Callable[[dict], dict]
    holds: tuple[str, ...]
    processor: str
    positions: tuple[str, ...] = ("learned",)
    covers: tuple[str, ...] = ("all",)
    rule: Callable[[dict], str] = lambda fields: "bicubic"
    base: str = ""
    outside: tuple[str, ...] = ("classifier.",)
    whole: str = ""
    square: bool = False
    spelling: Callable[[TensorNames, set[str]], TensorNames] = lambda names, held: names
    write: Callable[[Any], dict] = lambda arch: {}
    fillers: Callable[[Any], dict] = lambda arch: {}


NAMES = TensorNames.of(
    "patches=embeddings.patch_embeddings.projection cls=embeddings.cls_token "
    "positions=embeddings.position_embeddings block=encoder.layer.{}. norm_0=layernorm_before "
    "query=attention.attention.query key=attention.attention.key "
    "value=attention.attention.value out=attention.output.dense norm_2=layernorm_after "
    "dense_0=intermediate.dense dense_1=output.dense norm=layernorm pre_logits=pooler.dense "
    "head=classifier",
)
DEIT = dataclasses.replace(NAMES, dist="embeddings.distillation_token")
TEACHER = {"head": "cls_classifier", "head_dist": "distillation_classifier"}
TABLE = "relative_position_bias.relative_position_bias_table"
BEIT = dataclasses.replace(
    NAMES,
    scale_0="lambda_1",
    scale_1="lambda_2",
    relative=f"attention.attention.{TABLE}",
    shared_relative=f"encoder.{TABLE}",
    pooled_norm="pooler.layernorm",
    pre_logits="",
)
BOXES = {"head_mlp_{}": "class_labels_classifier", "head_boxes_mlp_{}": "bbox_predictor"}
YOLOS = dataclasses.replace(
    NAMES,
    registers="embeddings.detection_tokens",
    positions_of_blocks="encoder.mid_position_embeddings",
    registers_last=True,
    head="class_labels_classifier.layers.2",
    boxes={
        (ours.removesuffix("_mlp_{}") if i == 2 else ours.format(i)): f"{theirs}.layers.{i}"
        for ours, theirs in BOXES.items()
        for i in range(3)
    },
)
FIRST = ("encoder.layer.0.layernorm_before.weight",)
FIELDS = {**COMMON, "layer_norm_eps": 1e-12}


def _biased(fields):
    return {"qkv_bias": "all" if fields["qkv_bias"] else "none"}


def _write_biased(arch):
    return {"qkv_bias": arch.options.qkv_bias == "all"}


def _yolos(names):
    detects = f"{YOLOS.head}.weight" in names
    return {"classifier": "token", "boxes": "tokens" if detects else None}


def _yolos_says(fields):
    at = {"position_embedding_at": "every"} if fields["use_mid_position_embeddings"] else {}
    return {**_biased(fields), **at}


def _write_yolos(arch):
    """Returns the special fields, after checking that transformers supports the sizes."""
    (height, width), (side, other) = arch.image_size, arch.patch_size
    every = arch.position_embedding_at == "every"
    is_whole = height * width // side**2 == arch.grid[0] * arch.grid[1]
    pooler = arch.representation_size in (None, arch.hidden_size)
    if side != other or not pooler or (every and (arch.num_layers == 1 or not is_whole)):
        raise ValueError(
            "transformers' YOLOS has square patches, a pooler as wide as the tokens and, with "
            "position_embedding_at='every', several blocks and images of whole patches. Received: "
            f"patch_size={arch.patch_size}, image_size={arch.image_size}, "
            f"num_layers={arch.num_layers}, representation_size={arch.representation_size}"
        )
    return {
        **_write_biased(arch),
        "image_size": list(arch.image_size),
        "num_detection_tokens": arch.options.num_registers,
        "use_mid_position_embeddings": every,
    }


def _deit(names):
    if f"{TEACHER['head']}.weight" in names:
        return {"classifier": "distilled"}
    return {"classifier": "token", "distillation_token": True}


def _deit_spelling(row, names):
    teacher = f"{TEACHER['head']}.weight" in names
    return dataclasses.replace(row, **TEACHER) if teacher else row


def _beit(names):
    """Returns the classifier. The pooler normalizes the mean; without a pooler, nothing does."""
    if f"{BEIT.pooled_norm}.weight" in names:
        return {"classifier": "gap_norm", "class_token": True}
    if f"{BEIT.norm}.weight" in names:
        return {"classifier": "token"}
    return {"classifier": "gap", "class_token": True, "final_norm": False}


def _beit_says(fields):
    relative = fields["use_relative_position_bias"] or fields["use_shared_relative_position_bias"]
    kinds = ["learned"] if fields["use_absolute_position_embeddings"] else []
    kinds += ["relative_2d"] if relative else []
    return {
        "qkv_bias": "qv",
        "position_embedding": "_".join(kinds) or "none",
        "layer_scale": LAYER_SCALE if fields["layer_scale_init_value"] > 0 else None,
    }


def _beit_spelling(row, names):
    """Keeps the names of the blocks' tables, the shared table, or both, which are then added."""
    in_blocks = row.of_block(0, row.relative) in names
    changes = {"relative": row.relative if in_blocks else ""}
    if row.shared_relative not in names:
        changes["shared_relative"] = ""
    return dataclasses.replace(row, **changes) if in_blocks or row.shared_relative in names else row


def _write_beit(arch):
    return {
        "use_relative_position_bias": arch.position_embedding.endswith("relative_2d"),
        "use_shared_relative_position_bias": False,
        "use_absolute_position_embeddings": arch.position_embedding.startswith("learned"),
        "use_mask_token": False,
        "use_mean_pooling": arch.classifier == "gap_norm",
        "layer_scale_init_value": arch.options.layer_scale or 0.0,
        "drop_path_rate": 0.0,
    }


VIT = ModelType(
    name="vit",
    marks=FIRST,
    names=NAMES,
    classes={("token", ""): "ViTModel", ("token", "classifier"): "ViTForImageClassification"},
    fields=FIELDS,
    design=lambda names: {"classifier": "token"},
    says=_biased,
    holds=("qkv_bias",),
    processor="ViTImageProcessor",
    base="vit.",
    write=_write_biased,
)
VIT_TYPES = (
    dataclasses.replace(
        VIT,
        name="yolos",
        marks=(*FIRST, YOLOS.registers),
        names=YOLOS,
        classes={("token", ""): "YolosModel", ("token", "classifier"): "YolosForObjectDetection"},
        fields={**FIELDS, "use_mid_position_embeddings": True},
        design=_yolos,
        says=_yolos_says,
        holds=(*VIT.holds, "num_registers", "boxes"),
        processor="YolosImageProcessor",
        outside=("class_labels_classifier.", "bbox_predictor."),
        write=_write_yolos,
    ),
    dataclasses.replace(
        VIT,
        name="deit",
        marks=(*FIRST, DEIT.dist),
        names=DEIT,
        classes={
            ("token", ""): "DeiTModel",
            ("token", "classifier"): "DeiTForImageClassification",
            ("distilled", "classifier"): "DeiTForImageClassificationWithTeacher",
        },
        design=_deit,
        holds=(*VIT.holds, "distillation_token"),
        processor="DeiTImageProcessor",
        base="deit.",
        outside=("classifier.", "cls_classifier.", "distillation_classifier."),
        spelling=_deit_spelling,
    ),
    dataclasses.replace(
        VIT,
        name="beit",
        marks=(*FIRST, BEIT.of_block(0, BEIT.scale_0)),
        names=BEIT,
        classes={
            ("token", ""): "BeitModel",
            ("gap_norm", ""): "BeitModel",
            ("token", "classifier"): "BeitForImageClassification",
            ("gap_norm", "classifier"): "BeitForImageClassification",
        },
        fields={
            **FIELDS,
            "use_relative_position_bias": False,
            "use_shared_relative_position_bias": False,
            "use_absolute_position_embeddings": False,
            "layer_scale_init_value": 0.1,
        },
        design=_beit,
        says=_beit_says,
        holds=("qkv_bias", "layer_scale", "class_token"),
        positions=("relative_2d", "learned", "learned_relative_2d", "none"),
        rule=lambda f: (
            "bicubic" if f["use_absolute_position_embeddings"] else "bilinear_half_pixel"
        ),
        processor="BeitImageProcessor",
        base="beit.",
        square=True,
        spelling=_beit_spelling,
        write=_write_beit,
    ),
    VIT,
    dataclasses.replace(
        VIT,
        name="ijepa",
        classes={("gap", ""): "IJepaModel", ("gap", "classifier"): "IJepaForImageClassification"},
        design=lambda names: {"classifier": "gap"},
        base="ijepa.",
    ),
    dataclasses.replace(VIT, name="vit_mae", classes={}),
    dataclasses.replace(
        VIT,
        name="vit_msn",
        fields={**FIELDS, "layer_norm_eps": 1e-6},
        classes={
            ("token", ""): "ViTMSNModel",
            ("token", "classifier"): "ViTMSNForImageClassification",
        },
    ),
)


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
DINO_FIRST = ("encoder.layer.0.norm1.weight",)


def _spelling(row, names):
    for swiglu, mark in ((PACKED, PACKED.packed), (IN_MEMORY, IN_MEMORY.gate)):
        if row.of_block(0, f"{mark}.weight") in names:
            return swiglu
    return row


def _design(names):
    """Returns a classifier on the class token and, with a head, the mean of the patches."""
    classifier = "token_gap" if f"{DINOV2.head}.weight" in names else "token"
    return {"classifier": classifier, "layer_scale": LAYER_SCALE}


def _says(fields):
    return {
        "qkv_bias": "all" if fields["qkv_bias"] else "none",
        "mlp": "swiglu" if fields["use_swiglu_ffn"] else "gelu",
        "num_registers": fields["num_register_tokens"],
    }


def _write(arch):
    swiglu = arch.options.mlp == "swiglu"
    units = lambda ratio: ratio * arch.hidden_size
    gated = lambda ratio: (int(units(ratio) * 2 / 3) + 7) // 8 * 8
    ratios = [r for r in range(1, 65) if (gated if swiglu else units)(r) == arch.mlp_dim]
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
    return {"embeddings.mask_token": np.zeros((1, arch.hidden_size))}


WITHOUT = ModelType(
    name="dinov2",
    marks=DINO_FIRST,
    names=DINOV2,
    classes={
        ("token", ""): "Dinov2Model",
        ("token_gap", "classifier"): "Dinov2ForImageClassification",
    },
    fields={**COMMON, "layer_norm_eps": 1e-6, "use_swiglu_ffn": False, "num_register_tokens": 0},
    design=_design,
    says=lambda fields: _says({**fields, "num_register_tokens": 0}),
    holds=("qkv_bias", "mlp", "layer_scale"),
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
    marks=(*DINO_FIRST, DINOV2.registers),
    classes={
        ("token", ""): "Dinov2WithRegistersModel",
        ("token_gap", "classifier"): "Dinov2WithRegistersForImageClassification",
    },
    fields={**WITHOUT.fields, "num_register_tokens": 4},
    says=_says,
    holds=(*WITHOUT.holds, "num_registers", "position_cover"),
    covers=("class",),
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
    mask = {"embeddings.mask_token": np.zeros((1, 1, arch.hidden_size))}
    none = {PLAIN.registers: np.zeros((1, 0, arch.hidden_size))}
    return mask if arch.options.num_registers else mask | none


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
    holds=("qkv_bias", "mlp", "layer_scale", "num_registers", "rope"),
    positions=("none",),
    processor="DINOv3ViTImageProcessor",
    write=_write_dinov3,
    fillers=_fillers_dinov3,
)
TYPES = (*VIT_TYPES, REGISTERS, WITHOUT, DINOV3)
