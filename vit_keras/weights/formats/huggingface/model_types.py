"""One row for each of transformers' model types: ViT, DeiT, BEiT, DINO, CLIP, SigLIP and so on."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from vit_keras.layers import Rope
from vit_keras.layers.common import QKV_BIASES, check_choice
from vit_keras.models.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.base import pairs
from vit_keras.weights.formats.tensor_names import LAYER_SCALE, TensorNames

# Defaults that most of the configuration classes share.
COMMON = {"num_attention_heads": 12, "hidden_act": "gelu"}
# Fields, the arguments of `VisionTransformer`, and their values if a field is false or true.
TRANSLATED: dict[str, tuple[str, tuple[str, ...]]] = {
    "qkv_bias": ("qkv_bias", ("none", "all")),
    "use_swiglu_ffn": ("mlp", ("gelu", "swiglu")),
    "use_gated_mlp": ("mlp", ("gelu", "swiglu")),
    "use_mid_position_embeddings": ("position_embedding_at", ("stem", "every")),
    "num_register_tokens": ("num_registers", ()),
    "num_detection_tokens": ("num_registers", ()),
}


@dataclasses.dataclass(frozen=True)
class ModelType:
    """One of transformers' model types.

    Attributes:
        name: The value of `model_type` in `config.json`.
        marks: Canonical names that identify its files without a configuration.
        names: The names of its tensors.
        classes: The class, by the classifier's input and kind: "", "classifier" or "projection".
        fields: The defaults of its configuration; `TRANSLATED` turns some into arguments.
        design: Takes the canonical names of a file; returns the arguments of `VisionTransformer`
            that the type or the presence of tensors decides.
        processor: The name of its image processor.
        says: Takes the fields of a configuration; returns the arguments that follow from others.
        covers: The tokens that positions may cover, as in `ViTOptions.position_cover`.
        rule: Takes the fields of a configuration; returns the rule for resizing positions.
        base: The prefix of the backbone's tensors in classes with a head.
        square: Whether its configuration has one side for images and one for patches.
        write: Takes an architecture; returns the type's other fields of the configuration.
        fillers: Takes an architecture; returns `{name: array}`, tensors that have no effect.
        as_read: As in `Format`.
    """

    name: str
    marks: tuple[str, ...]
    names: TensorNames
    classes: Mapping[tuple[str, str], str]
    fields: Mapping[str, Any]
    design: Callable[[set[str]], dict]
    processor: str
    says: Callable[[dict], dict] = lambda fields: {}
    covers: tuple[str, ...] = ("all",)
    rule: Callable[[dict], str] = lambda fields: "bicubic"
    base: str = ""
    square: bool = False
    write: Callable[[Any], dict] = lambda arch: {}
    fillers: Callable[[Any], dict] = lambda arch: {}
    as_read: Callable[[Any], dict] = lambda arch: {}

    @property
    def whole(self) -> str:
        """The model type that has a text tower, and this one as its `vision_config`; or ""."""
        start, end, _ = self.name.partition("_vision_model")
        return start if end else ""

    def arguments(self, fields: dict) -> dict[str, Any]:
        """Returns the arguments that the fields of a configuration determine."""
        arguments: dict[str, Any] = {
            name: values[bool(fields[field])] if values else fields[field]
            for field, (name, values) in TRANSLATED.items()
            if field in self.fields
        }
        return arguments | self.says(fields)

    def written(self, arch: VisionTransformerArchitecture) -> dict[str, Any]:
        """Returns the fields of the configuration of a model, besides its sizes."""
        held = {"position_embedding_at": arch.position_embedding_at, **vars(arch.options)}
        fields = {
            field: held[name] == values[True] if values else held[name]
            for field, (name, values) in TRANSLATED.items()
            if field in self.fields
        }
        return fields | self.write(arch)


def _classes(prefix, token="token", of_classes=None):
    """Returns the usual `ModelType.classes`."""
    return {
        (token, ""): f"{prefix}Model",
        (of_classes or token, "classifier"): f"{prefix}ForImageClassification",
    }


NAMES = TensorNames.of(
    "patches=embeddings.patch_embeddings.projection cls=embeddings.cls_token "
    "positions=embeddings.position_embeddings block=encoder.layer.{}. norm_0=layernorm_before "
    "query=attention.attention.query key=attention.attention.key "
    "value=attention.attention.value out=attention.output.dense norm_2=layernorm_after "
    "dense_0=intermediate.dense dense_1=output.dense norm=layernorm pre_logits=pooler.dense "
    "head=classifier",
)
DEIT = NAMES.replaced(
    "dist=embeddings.distillation_token head_dist=distillation_classifier",
    spellings=[pairs("head=cls_classifier head_dist=distillation_classifier")],
)
TABLE = "relative_position_bias.relative_position_bias_table"
ABSOLUTE = "use_absolute_position_embeddings"  # a field of BEiT's configuration
BEIT = NAMES.replaced(
    f"scale_0=lambda_1 scale_1=lambda_2 relative=attention.attention.{TABLE} "
    f"shared_relative=encoder.{TABLE} pooled_norm=pooler.layernorm pre_logits="
)
YOLOS = NAMES.replaced(
    "registers=embeddings.detection_tokens head=class_labels_classifier.layers.2 "
    "positions_of_blocks=encoder.mid_position_embeddings",
    registers_last=True,
    boxes=pairs(
        "head_mlp_0=class_labels_classifier.layers.0 head_mlp_1=class_labels_classifier.layers.1 "
        "head=class_labels_classifier.layers.2 head_boxes_mlp_0=bbox_predictor.layers.0 "
        "head_boxes_mlp_1=bbox_predictor.layers.1 head_boxes=bbox_predictor.layers.2"
    ),
)
FIRST = ("encoder.layer.0.layernorm_before.weight",)
FIELDS = {**COMMON, "qkv_bias": True, "layer_norm_eps": 1e-12}


def _yolos(names):
    detects = f"{YOLOS.head}.weight" in names
    return {"classifier": "token", "boxes": "tokens" if detects else None}


def _yolos_as_read(arch):
    """Returns the pooler's width, and where positions are added, in transformers' code."""
    (height, width), side, every = arch.image_size, arch.patch_size[0], arch.num_layers > 1
    every = every and height * width // side**2 == arch.grid[0] * arch.grid[1]
    pools = arch.representation_size is not None
    return {
        **({} if every else {"position_embedding_at": "stem"}),
        **({"representation_size": arch.hidden_size} if pools else {}),
    }


def _deit(names):
    if f"{DEIT.head_dist}.weight" in names:
        return {"classifier": "distilled"}
    return {"classifier": "token", "distillation_token": True}


def _beit(names):
    """Returns the classifier. The pooler normalizes the mean; without a pooler, nothing does."""
    if f"{BEIT.pooled_norm}.weight" in names:
        return {"classifier": "gap_norm", "class_token": True}
    if f"{BEIT.norm}.weight" in names:
        return {"classifier": "token"}
    return {"classifier": "gap", "class_token": True, "final_norm": False}


def _beit_says(fields):
    relative = fields["use_relative_position_bias"] or fields["use_shared_relative_position_bias"]
    kinds = ["learned"] if fields[ABSOLUTE] else []
    kinds += ["relative_2d"] if relative else []
    return {
        "qkv_bias": "qv",
        "position_embedding": "_".join(kinds) or "none",
        "layer_scale": LAYER_SCALE if fields["layer_scale_init_value"] > 0 else None,
    }


def _write_beit(arch):
    return {
        "use_relative_position_bias": arch.position_embedding.endswith("relative_2d"),
        ABSOLUTE: arch.position_embedding.startswith("learned"),
        "use_mean_pooling": arch.classifier == "gap_norm",
        "layer_scale_init_value": arch.options.layer_scale or 0.0,
        "drop_path_rate": 0.0,
    }


VIT = ModelType(
    name="vit",
    marks=FIRST,
    names=NAMES,
    classes=_classes("ViT"),
    fields=FIELDS,
    design=lambda names: {"classifier": "token"},
    processor="ViTImageProcessor",
    base="vit.",
)
VIT_TYPES = (
    dataclasses.replace(
        VIT,
        name="yolos",
        marks=(*FIRST, YOLOS.registers),
        names=YOLOS,
        classes={("token", ""): "YolosModel", ("token", "classifier"): "YolosForObjectDetection"},
        fields={**FIELDS, "use_mid_position_embeddings": True, "num_detection_tokens": 100},
        design=_yolos,
        processor="YolosImageProcessor",
        square=True,
        write=lambda arch: {"image_size": list(arch.image_size)},
        as_read=_yolos_as_read,
    ),
    dataclasses.replace(
        VIT,
        name="deit",
        marks=(*FIRST, DEIT.dist),
        names=DEIT,
        classes={
            **_classes("DeiT"),
            ("distilled", "classifier"): "DeiTForImageClassificationWithTeacher",
        },
        design=_deit,
        processor="DeiTImageProcessor",
        base="deit.",
    ),
    dataclasses.replace(
        VIT,
        name="beit",
        marks=(*FIRST, BEIT.of_block(0, BEIT.scale_0)),
        names=BEIT,
        classes=_classes("Beit") | _classes("Beit", "gap_norm"),
        fields={
            **COMMON,
            "layer_norm_eps": 1e-12,
            "use_relative_position_bias": False,
            "use_shared_relative_position_bias": False,
            ABSOLUTE: False,
            "layer_scale_init_value": 0.1,
        },
        design=_beit,
        says=_beit_says,
        rule=lambda fields: "bicubic" if fields[ABSOLUTE] else "bilinear_half_pixel",
        processor="BeitImageProcessor",
        base="beit.",
        square=True,
        write=_write_beit,
    ),
    VIT,
    dataclasses.replace(
        VIT,
        name="ijepa",
        classes=_classes("IJepa", "gap"),
        design=lambda names: {"classifier": "gap"},
        base="ijepa.",
    ),
    dataclasses.replace(VIT, name="vit_mae", classes={}),
    dataclasses.replace(
        VIT, name="vit_msn", fields={**FIELDS, "layer_norm_eps": 1e-6}, classes=_classes("ViTMSN")
    ),
)

DINOV2 = NAMES.replaced(
    "norm_0=norm1 scale_0=layer_scale1.lambda1 norm_2=norm2 dense_0=mlp.fc1 dense_1=mlp.fc2 "
    "gate=mlp.weights_in scale_1=layer_scale2.lambda1 pre_logits=",
    spellings=[  # of SwiGLU, on disk and in memory
        pairs("dense_0=mlp.weights_in dense_1=mlp.weights_out"),
        pairs("gate=mlp.gate_proj dense_0=mlp.up_proj dense_1=mlp.down_proj"),
    ],
)
DINO_FIRST, REGISTER_TOKENS = ("encoder.layer.0.norm1.weight",), "embeddings.register_tokens"


def _design(names):
    """Returns a classifier on the class token and, with a head, the mean of the patches."""
    classifier = "token_gap" if f"{DINOV2.head}.weight" in names else "token"
    return {"classifier": classifier, "layer_scale": LAYER_SCALE}


def _units(arch, ratio):
    """The width of the MLP that DINOv2's code derives from a ratio."""
    units = ratio * arch.hidden_size
    return units if arch.options.mlp == "gelu" else (int(units * 2 / 3) + 7) // 8 * 8


def _ratio(arch):
    return min(
        range(1, 65), key=lambda ratio: (abs(_units(arch, ratio) - arch.mlp_dim), ratio != 4)
    )


WITHOUT = ModelType(
    name="dinov2",
    marks=DINO_FIRST,
    names=DINOV2,
    classes=_classes("Dinov2", of_classes="token_gap"),
    fields={**COMMON, "qkv_bias": True, "layer_norm_eps": 1e-6, "use_swiglu_ffn": False},
    design=_design,
    processor="BitImageProcessor",
    base="dinov2.",
    square=True,
    write=lambda arch: {"mlp_ratio": _ratio(arch)},
    fillers=lambda arch: {"embeddings.mask_token": np.zeros((1, arch.hidden_size))},
    as_read=lambda arch: {"mlp_dim": _units(arch, _ratio(arch))},
)
REGISTERS = dataclasses.replace(
    WITHOUT,
    name="dinov2_with_registers",
    marks=(*DINO_FIRST, REGISTER_TOKENS),
    names=DINOV2.replaced(registers=REGISTER_TOKENS),
    classes=_classes("Dinov2WithRegisters", of_classes="token_gap"),
    fields={**WITHOUT.fields, "num_register_tokens": 4},
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
    check_choice(held, kinds, "projections with a bias")
    return {"qkv_bias": kinds[held], "rope": Rope(base=fields["rope_theta"], centered=True)}


def _write_dinov3(arch):
    held = QKV_BIASES[arch.options.qkv_bias]
    return {
        **{name: name.removesuffix("_bias") in held for name in BIASES},
        **({"hidden_act": "silu"} if arch.options.mlp == "swiglu" else {}),
        "rope_theta": arch.options.rope.base,
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
    processor="DINOv3ViTImageProcessor",
    write=_write_dinov3,
    fillers=_fillers_dinov3,
)


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
    "pre_norm=pre_layernorm",
    boxes=pairs(
        "head_norm=layer_norm head=class_head.dense0 head_shift=class_head.logit_shift "
        "head_scale=class_head.logit_scale head_boxes_mlp_0=box_head.dense0 "
        "head_boxes_mlp_1=box_head.dense1 head_boxes=box_head.dense2 "
        "head_objectness_mlp_0=objectness_head.dense0 head_objectness_mlp_1=objectness_head.dense1 "
        "head_objectness=objectness_head.dense2"
    ),
    # The heads of boxes do not read the projection to embeddings of texts.
    spellings=[pairs("head=class_head.dense0 projection=")],
)
SIGLIP = CLIP.replaced(
    "cls= pre_norm= projection= pool_probe=head.probe pool_qkv=head.attention.in_proj_ "
    "pool_out=head.attention.out_proj pool_norm=head.layernorm pool_dense_0=head.mlp.fc1 "
    "pool_dense_1=head.mlp.fc2"
)
NAFLEX = SIGLIP.replaced(linear_patches=True)
CLIP_FIRST = ("encoder.layers.0.self_attn.q_proj.weight", "embeddings.patch_embedding.weight")


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
    projects = arch.num_classes is not None and not arch.options.head_use_bias
    return {"projection_dim": arch.num_classes} if projects else {}


SIGLIP_TYPE = ModelType(
    name="siglip_vision_model",
    marks=CLIP_FIRST,
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
    marks=(*CLIP_FIRST, CLIP.cls),
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
    *(*VIT_TYPES, REGISTERS, WITHOUT, DINOV3),
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
