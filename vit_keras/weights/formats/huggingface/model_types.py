"""One row for each of transformers' model types: ViT, DeiT, BEiT, DINO, CLIP, SigLIP and so on."""

import math
import types
from collections.abc import Mapping
from typing import Any

import numpy as np

from vit_keras.models.architectures import VisionTransformerArchitecture
from vit_keras.support.preprocessing import Resizing
from vit_keras.weights.formats.base import pairs
from vit_keras.weights.formats.tensor_names import LAYER_SCALE, TensorNames

# Defaults that most of the configuration classes share.
COMMON = {"num_attention_heads": 12, "hidden_act": "gelu"}
ABSOLUTE, RELATIVE = "use_absolute_position_embeddings", "use_relative_position_bias"
# Fields that equal an argument of `VisionTransformer`, or are true for some of its values.
DERIVED: dict[str, tuple[str, tuple[str, ...]]] = {
    "qkv_bias": ("qkv_bias", ("all",)),
    "query_bias": ("qkv_bias", ("all", "qv")),
    "key_bias": ("qkv_bias", ("all",)),
    "value_bias": ("qkv_bias", ("all", "qv")),
    "use_swiglu_ffn": ("mlp", ("swiglu",)),
    "use_gated_mlp": ("mlp", ("swiglu",)),
    "use_mid_position_embeddings": ("position_embedding_at", ("every",)),
    ABSOLUTE: ("position_embedding", ("learned", "learned_relative_2d")),
    "num_register_tokens": ("num_registers", ()),
    "num_detection_tokens": ("num_registers", ()),
}
MODEL_TYPES: dict[str, "ModelType"] = {}


class ModelType:
    """One of transformers' model types: a subclass, declared with its name in `config.json`.

    Attributes:
        names: The names of its tensors.
        mark: The canonical name of a tensor in its files, but not in those of similar types; or "".
        classes: The class, by the classifier's input and kind: "", "classifier", "projection" or
            "boxes".
        fields: Its configuration's fields and defaults; `derived` computes those in `DERIVED`.
        image_size: The default height and width in its configuration.
        processor: The name of its image processor.
        resizing: The rules of its class for other sizes.
        covers: The tokens that positions may cover, as in `ViTOptions.position_cover`.
        base: The prefix of the backbone's tensors in classes with a head; "" for the type's name.
        square: Whether its configuration has one side for images and one for patches.
        fixed: The arguments that the type decides.
        designs: The arguments that tensors decide: the first of these names that a file has counts,
            and "" is in every file.
    """

    name: str
    names: TensorNames
    mark = ""
    classes: Mapping[tuple[str, str], str]
    fields: Mapping[str, Any]
    image_size = (224, 224)
    processor: str
    resizing = Resizing("bicubic", "bicubic", crops=True)
    covers: tuple[str, ...] = ("all",)
    base = ""
    square = False
    fixed: Mapping[str, Any] = types.MappingProxyType({"classifier": "token"})
    designs: Mapping[str, Mapping[str, Any]] = types.MappingProxyType({"": {}})

    def __init_subclass__(cls, name: str):
        cls.name = name
        MODEL_TYPES[name] = cls()

    @property
    def whole(self) -> str:
        """The model type that has a text tower, and this one as its `vision_config`; or ""."""
        start, end, _ = self.name.partition("_vision_model")
        return start if end else ""

    @property
    def held(self) -> set[str]:
        """Canonical names of tensors that all files of this and similar types have."""
        layers = (self.names.patches, self.names.of_block(0, self.names.norm_0))
        return {f"{layer}.weight" for layer in layers}

    def design(self, names: set[str]) -> dict[str, Any]:
        """Returns the arguments that the type and the presence of tensors decide."""
        return {**self.fixed, **next((x for k, x in self.designs.items() if k in {"", *names}), {})}

    def derived(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields of the configuration that arguments decide."""
        return {
            field: arguments[name] in values if values else arguments[name]
            for field, (name, values) in DERIVED.items()
            if field in self.fields
        }

    def written(self, arch: VisionTransformerArchitecture) -> dict[str, Any]:
        """Returns the fields of the configuration of a model, besides its sizes."""
        return self.derived({**vars(arch), **vars(arch.options)})

    def fillers(self, arch: VisionTransformerArchitecture) -> dict[str, np.ndarray]:
        """Returns `{name: array}`, tensors that have no effect."""
        return {}

    def as_read(self, arch: VisionTransformerArchitecture) -> dict[str, Any]:
        """As in `Format`."""
        return {}


def _classes(prefix, token="token", of_classes=None):
    """Returns the usual `ModelType.classes`."""
    return {
        (token, ""): f"{prefix}Model",
        (of_classes or token, "classifier"): f"{prefix}ForImageClassification",
    }


class Vit(ModelType, name="vit"):
    names = TensorNames.of(
        "patches=embeddings.patch_embeddings.projection cls=embeddings.cls_token "
        "positions=embeddings.position_embeddings block=encoder.layer.{}. norm_0=layernorm_before "
        "query=attention.attention.query key=attention.attention.key "
        "value=attention.attention.value out=attention.output.dense norm_2=layernorm_after "
        "dense_0=intermediate.dense dense_1=output.dense norm=layernorm pre_logits=pooler.dense "
        "head=classifier",
    )
    classes: Mapping = _classes("ViT")
    fields: Mapping = {**COMMON, "qkv_bias": True, "layer_norm_eps": 1e-12}
    processor = "ViTImageProcessor"


class Yolos(Vit, name="yolos"):
    base = "vit."
    names = Vit.names.replaced(
        "registers=embeddings.detection_tokens head=class_labels_classifier.layers.2 "
        "positions_of_blocks=encoder.mid_position_embeddings",
        registers_last=True,
        others=pairs(
            "head_mlp_0=class_labels_classifier.layers.0 head=class_labels_classifier.layers.2 "
            "head_mlp_1=class_labels_classifier.layers.1 head_boxes_mlp_0=bbox_predictor.layers.0 "
            "head_boxes_mlp_1=bbox_predictor.layers.1 head_boxes=bbox_predictor.layers.2"
        ),
    )
    mark = names.registers
    classes: Mapping = {("token", ""): "YolosModel", ("token", "boxes"): "YolosForObjectDetection"}
    fields: Mapping = dict(Vit.fields, use_mid_position_embeddings=True, num_detection_tokens=100)
    image_size = (512, 864)
    processor = "YolosImageProcessor"
    square = True
    designs: Mapping = {f"{names.head}.weight": {"boxes": "tokens"}}

    def written(self, arch):
        return super().written(arch) | {"image_size": list(arch.image_size)}

    def as_read(self, arch):
        """Keeps later positions only if transformers, which counts them by area, has as many."""
        counted = math.prod(arch.image_size) // arch.patch_size[0] ** 2
        return {} if counted == math.prod(arch.grid) else {"position_embedding_at": "stem"}


class Deit(Vit, name="deit"):
    names = Vit.names.replaced(
        "dist=embeddings.distillation_token head_dist=distillation_classifier",
        spellings=[pairs("head=cls_classifier head_dist=distillation_classifier")],
    )
    mark = names.dist
    classes: Mapping = {
        **_classes("DeiT"),
        ("distilled", "classifier"): "DeiTForImageClassificationWithTeacher",
    }
    processor = "DeiTImageProcessor"
    designs: Mapping = {
        f"{names.head_dist}.weight": {"classifier": "distilled"},
        "": {"distillation_token": True},
    }


# The mean of the patches, not normalized.
BARE_MEAN = {"classifier": "gap", "class_token": True, "final_norm": False}
TABLE = "relative_position_bias.relative_position_bias_table"


class Beit(Vit, name="beit"):
    names = Vit.names.replaced(
        f"scale_0=lambda_1 scale_1=lambda_2 relative=attention.attention.{TABLE} "
        f"shared_relative=encoder.{TABLE} pooled_norm=pooler.layernorm pre_logits="
    )
    mark = names.of_block(0, names.scale_0)
    classes: Mapping = _classes("Beit") | _classes("Beit", "gap_norm")
    fields: Mapping = {**COMMON, ABSOLUTE: False, "layer_norm_eps": 1e-12}
    processor = "BeitImageProcessor"
    fixed: Mapping = {"classifier": "token", "qkv_bias": "qv"}
    resizing = Resizing("bicubic", "bicubic", biases="bilinear_half_pixel", crops=True)
    square = True
    designs: Mapping = {  # the pooler normalizes the mean; without a pooler, nothing does
        f"{names.pooled_norm}.weight": {"classifier": "gap_norm", "class_token": True},
        f"{names.norm}.weight": {},
        "": BARE_MEAN,
    }

    def written(self, arch):
        return super().written(arch) | {
            RELATIVE: arch.position_embedding.endswith("relative_2d"),
            "use_mean_pooling": arch.classifier == "gap_norm",
            "layer_scale_init_value": arch.options.layer_scale or 0.0,
            "drop_path_rate": 0.0,
        }


class Ijepa(Vit, name="ijepa"):
    names = Vit.names.replaced("cls=")
    classes: Mapping = _classes("IJepa", "gap")
    fixed: Mapping = {"classifier": "gap"}


class VitMsn(Vit, name="vit_msn"):
    base = "vit."
    fields: Mapping = {**Vit.fields, "layer_norm_eps": 1e-6}
    classes: Mapping = _classes("ViTMSN")


class Dinov2(ModelType, name="dinov2"):
    names = Vit.names.replaced(
        "norm_0=norm1 scale_0=layer_scale1.lambda1 norm_2=norm2 dense_0=mlp.fc1 dense_1=mlp.fc2 "
        "gate=mlp.weights_in scale_1=layer_scale2.lambda1 pre_logits=",
        spellings=[  # of SwiGLU, on disk and in memory
            pairs("dense_0=mlp.weights_in dense_1=mlp.weights_out"),
            pairs("gate=mlp.gate_proj dense_0=mlp.up_proj dense_1=mlp.down_proj"),
        ],
    )
    classes: Mapping = _classes("Dinov2", of_classes="token_gap")
    fields: Mapping = {**Vit.fields, "layer_norm_eps": 1e-6, "use_swiglu_ffn": False}
    processor = "BitImageProcessor"
    fixed: Mapping = {"classifier": "token", "layer_scale": LAYER_SCALE}
    square = True
    designs: Mapping = {f"{names.head}.weight": {"classifier": "token_gap"}}

    def written(self, arch):
        return super().written(arch) | {"mlp_ratio": self._ratio(arch)}

    def fillers(self, arch):
        return {"embeddings.mask_token": np.zeros((1, arch.hidden_size))}

    def as_read(self, arch):
        return {"mlp_dim": self._units(arch, self._ratio(arch))}

    def _units(self, arch, ratio):
        """The width of the MLP that DINOv2's code derives from a ratio."""
        units = ratio * arch.hidden_size
        return units if arch.options.mlp == "gelu" else (int(units * 2 / 3) + 7) // 8 * 8

    def _ratio(self, arch):
        distance = lambda ratio: (abs(self._units(arch, ratio) - arch.mlp_dim), ratio != 4)
        return min(range(1, 65), key=distance)


class Dinov2WithRegisters(Dinov2, name="dinov2_with_registers"):
    names = Dinov2.names.replaced("registers=embeddings.register_tokens")
    mark = names.registers
    classes: Mapping = _classes("Dinov2WithRegisters", of_classes="token_gap")
    fields: Mapping = {**Dinov2.fields, "num_register_tokens": 4}
    covers = ("class",)
    resizing = Resizing("bicubic_antialias", "bicubic", crops=True)


class Dinov3(ModelType, name="dinov3_vit"):
    names = TensorNames.of(
        "patches=embeddings.patch_embeddings cls=embeddings.cls_token "
        "registers=embeddings.register_tokens block=layer.{}. norm_0=norm1 query=attention.q_proj "
        "key=attention.k_proj value=attention.v_proj out=attention.o_proj "
        "scale_0=layer_scale1.lambda1 norm_2=norm2 gate=mlp.gate_proj dense_0=mlp.up_proj "
        "dense_1=mlp.down_proj scale_1=layer_scale2.lambda1 norm=norm",
    )
    classes: Mapping = {("token", ""): "DINOv3ViTModel"}
    fields: Mapping = {
        **COMMON,
        **dict.fromkeys(("query_bias", "value_bias", "proj_bias", "mlp_bias"), True),
        **dict.fromkeys(("key_bias", "use_gated_mlp"), False),
        "num_attention_heads": 6,
        "layer_norm_eps": 1e-5,
        "rope_theta": 100.0,
        "num_register_tokens": 0,
    }
    processor = "DINOv3ViTImageProcessor"
    fixed: Mapping = Dinov2.fixed

    def written(self, arch):
        gate = {"hidden_act": "silu"} if arch.options.mlp == "swiglu" else {}
        return {**super().written(arch), **gate, "rope_theta": arch.options.rope.base}

    def fillers(self, arch):
        return {"embeddings.mask_token": np.zeros((1, 1, arch.hidden_size))}


class ClipVision(ModelType, name="clip_vision_model"):
    names = TensorNames.of(
        "patches=embeddings.patch_embedding cls=embeddings.class_embedding "
        "positions=embeddings.position_embedding.weight pre_norm=pre_layrnorm "
        "block=encoder.layers.{}. norm_0=layer_norm1 query=self_attn.q_proj key=self_attn.k_proj "
        "value=self_attn.v_proj out=self_attn.out_proj norm_2=layer_norm2 dense_0=mlp.fc1 "
        "dense_1=mlp.fc2 norm=post_layernorm head=classifier projection=visual_projection.weight",
        token_axes=1,
        position_axes=2,
    )
    classes: Mapping = {
        ("token", ""): "CLIPVisionModel",
        ("token", "projection"): "CLIPVisionModelWithProjection",
        ("gap", "classifier"): "CLIPForImageClassification",
    }
    fields: Mapping = {**COMMON, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
    processor = "CLIPImageProcessor"
    fixed: Mapping = {"classifier": "token", "qkv_bias": "all", "pre_norm": True}
    base = "vision_model."
    square = True
    designs: Mapping = {f"{names.head}.weight": BARE_MEAN}

    def written(self, arch):
        projects = arch.num_classes is not None and not arch.options.head_use_bias
        return {"projection_dim": arch.num_classes} if projects else {}

    def fillers(self, arch):
        if arch.options.final_norm:
            return {}
        values = {"weight": np.ones(arch.hidden_size), "bias": np.zeros(arch.hidden_size)}
        return {f"{self.names.norm}.{leaf}": value for leaf, value in values.items()}


class OwlVit(ClipVision, name="owlvit_vision_model"):
    names = ClipVision.names.replaced(
        "pre_norm=pre_layernorm",
        others=pairs(
            "head_norm=layer_norm head=class_head.dense0 head_shift=class_head.logit_shift "
            "head_scale=class_head.logit_scale head_boxes_mlp_0=box_head.dense0 "
            "head_boxes_mlp_1=box_head.dense1 head_boxes=box_head.dense2 "
            "head_objectness_mlp_0=objectness_head.dense0 "
            "head_objectness_mlp_1=objectness_head.dense1 head_objectness=objectness_head.dense2"
        ),
        # The heads of boxes do not read the projection to embeddings of texts.
        spellings=[pairs("head=class_head.dense0 projection=")],
    )
    mark = f"{names.pre_norm}.weight"
    classes: Mapping = {}  # they need a text tower; a model without boxes is written as a CLIP
    image_size = (768, 768)
    processor = "OwlViTImageProcessor"
    designs: Mapping = {
        f"{names.others['head_objectness']}.weight": {"boxes": "texts_objectness"},
        f"{names.others['head']}.weight": {"boxes": "texts"},
    }


class OwlV2(OwlVit, name="owlv2_vision_model"):
    processor = "Owlv2ImageProcessor"


class Siglip(ModelType, name="siglip_vision_model"):
    names = ClipVision.names.replaced(
        "cls= pre_norm= projection= pool_probe=head.probe pool_qkv=head.attention.in_proj_ "
        "pool_out=head.attention.out_proj pool_norm=head.layernorm pool_dense_0=head.mlp.fc1 "
        "pool_dense_1=head.mlp.fc2"
    )
    classes: Mapping = {("map", ""): "SiglipVisionModel"}
    fields: Mapping = {**COMMON, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}
    processor = "SiglipImageProcessor"
    fixed: Mapping = {"classifier": "gap", "qkv_bias": "all", "map_mlp_dim": None}
    base = "vision_model."
    square = True
    # A classifier reads the mean of the normalized patches, even beside a pool.
    designs: Mapping = {f"{names.head}.weight": {}, names.pool_probe: {"classifier": "map"}}


class Siglip2(Siglip, name="siglip2_vision_model"):
    names = Siglip.names.replaced(linear_patches=True)
    classes: Mapping = {("map", ""): "Siglip2VisionModel"}
    processor = "Siglip2ImageProcessor"
    resizing = Resizing("bilinear_antialias", "bilinear_half_pixel", crops=True)

    def written(self, arch):
        return {"num_patches": arch.num_positions}


def by_names(names: set[str]) -> ModelType:
    """Returns the type that matches the names of a file's tensors; those with a mark come first."""
    rows = [row for row in MODEL_TYPES.values() if row.held <= names and row.mark in {"", *names}]
    whole = [row for row in rows if row.names.cls in {"", *names}]
    return max(whole or rows or [MODEL_TYPES["vit"]], key=lambda row: bool(row.mark))


def type_for(arch: VisionTransformerArchitecture, resizing: Resizing | None = None) -> ModelType:
    """Returns the type under which to write a model that resizes by these rules."""
    naflex = resizing is not None and resizing.positions == Siglip2.resizing.positions
    options, every = arch.options, arch.position_embedding_at == "every"
    plain = options.position_cover == "all" and options.layer_scale is None
    is_scaled = options.layer_scale is not None or options.mlp != "gelu"
    fits = {  # the first one counts
        "dinov3_vit": options.rope is not None,
        "clip_vision_model": options.pre_norm,
        "siglip2_vision_model": arch.classifier == "map" and naflex,
        "siglip_vision_model": arch.classifier == "map",
        "beit": arch.position_embedding.endswith("relative_2d") or options.qkv_bias == "qv",
        "yolos": options.boxes == "tokens" or every or (options.num_registers > 0 and plain),
        "deit": "dist" in arch.prefix.names,
        "dinov2_with_registers": options.num_registers > 0,
        "dinov2": is_scaled or arch.classifier == "token_gap",
        "ijepa": arch.classifier == "gap",
        "vit_msn": arch.num_classes is None and arch.representation_size is None,
        "vit": True,
    }
    return MODEL_TYPES[next(name for name, is_first in fits.items() if is_first)]
