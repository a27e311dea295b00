"""The text towers beside image towers, in transformers' folders and OpenCLIP's files.

Each is a separate format for the same file: its canonical names lack the prefix of the tower.
"""

import types
from typing import Any

import keras

from vit_keras.layers import BlockOptions, EncoderBlock
from vit_keras.layers.common import check_choice
from vit_keras.weights.formats import huggingface as hf
from vit_keras.weights.formats import open_clip
from vit_keras.weights.formats.base import Format, count_blocks, gelu_of
from vit_keras.weights.formats.huggingface.model_types import ClipVision
from vit_keras.weights.formats.tensor_names import TensorNames

TRANSFORMERS = ClipVision.names.replaced(
    "patches=embeddings.token_embedding norm=final_layer_norm head=head "
    "projection=text_projection.weight"
)
OPEN_CLIP = open_clip.CLIP.replaced(
    "patches=token_embedding norm=ln_final projection=text_projection head=text_projection"
)


OF_BLOCKS = ("num_heads", "mlp_dim", "gelu", "layer_norm_epsilon", "options")


class TextArchitecture(types.SimpleNamespace):
    """The arguments of `TextTransformer` that determine names, shapes and values."""

    position_embedding, classifier = "none", ""  # in the blocks; a projection replaces it

    @classmethod
    def from_model(cls, model: keras.Model) -> "TextArchitecture":
        """Reads the architecture from a `TextTransformer`."""
        layers = {layer.name: layer for layer in model.layers}
        projection, mask = layers.get("projection"), layers.get("text_mask")
        block, pooled = layers["encoderblock_0"], layers["pooled"]
        return cls(
            **layers["text_embedding"].sizes,
            **{name: getattr(block, name) for name in OF_BLOCKS},
            pooling=pooled.pooling,
            end_id=pooled.end_id,
            num_layers=sum(isinstance(layer, EncoderBlock) for layer in model.layers),
            projection_dim=projection and projection.units,
            projection_use_bias=bool(projection and projection.use_bias),
            causal=bool(mask and mask.causal),
            paths=tuple(variable.path for variable in model.weights),
        )


def _sizes(names: TensorNames, shapes: dict) -> dict[str, Any]:
    """Returns the arguments of `TextTransformer` that follow from names and shapes."""
    has_bias = f"{names.head}.weight" in shapes
    vocab_size, hidden_size = shapes[f"{names.patches}.weight"]
    projection = shapes.get(f"{names.head}.weight" if has_bias else names.projection, (None,))
    return {
        "vocab_size": vocab_size,
        "context_length": shapes[names.positions][0],
        "hidden_size": hidden_size,
        "num_layers": count_blocks(shapes, names.block.split("{}")[0]),
        "mlp_dim": shapes[names.of_block(0, f"{names.dense_0}.weight")][0],
        "projection_dim": projection[-1 if names.projection_is_ours and not has_bias else 0],
        "projection_use_bias": has_bias,
    }


CLIP = {"num_attention_heads": 8, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
CLIP |= {"eos_token_id": 49407, "projection_dim": 512}
SIGLIP = {"num_attention_heads": 12, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}
# transformers' model types: the class, and the defaults of the text tower's configuration.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "clip": ("CLIPModel", CLIP),
    "metaclip_2": ("MetaClip2Model", CLIP),
    "siglip": ("SiglipModel", SIGLIP),
    "siglip2": ("Siglip2Model", SIGLIP),
}
SIZES = {**hf.SIZES, "vocab_size": "vocab_size", "max_position_embeddings": "context_length"}
OPENAIS_END = 2  # with which transformers' CLIP takes the token of the largest id
IMAGE_TOWERS = ("CLIPVisionModelWithProjection", "SiglipVisionModel", "Siglip2VisionModel")


def kind_of(config: dict) -> str:
    """Returns transformers' model type; raises ValueError if its text tower is unknown."""
    check_choice(config.get("model_type"), KINDS, "model_type")
    return config["model_type"]


def text_config(config: dict) -> dict[str, Any]:
    """Returns the text tower's configuration, completed with transformers' defaults."""
    defaults = KINDS[kind_of(config)][1]
    inner = (defaults is CLIP and config.get("text_config_dict")) or config.get("text_config") or {}
    outer = {"projection_dim": config.get("projection_dim")} if defaults is CLIP else {}
    held = {key: value for key, value in {**inner, **outer}.items() if value is not None}
    return {**defaults, **held}


def config_of(arch: TextArchitecture, vision: dict, bias: float | None) -> dict:
    """Returns transformers' `config.json` for two towers.

    Args:
        arch: The architecture of the text tower.
        vision: The `config.json` of the image tower alone.
        bias: The bias of the logits, or None.

    Raises:
        ValueError: transformers has no class for them.
    """
    (tower,), kind = vision["architectures"], vision["model_type"].removesuffix("_vision_model")
    if kind == "clip" and arch.end_id == OPENAIS_END:
        kind = "metaclip_2"  # CLIP's class would take the token of the largest id
    name, defaults = KINDS.get(kind, ("", CLIP))
    is_clip = defaults is CLIP
    held = {
        "image tower": tower in IMAGE_TOWERS,
        "causal": arch.causal == is_clip,
        "pooling": arch.pooling in (("largest", "end") if is_clip else ("last",)),
        "projection_dim": arch.projection_dim is not None,
        "projection_use_bias": arch.projection_use_bias != is_clip,
        "options": arch.options == BlockOptions(),
        "logit_bias": (bias is None) == is_clip,
    }
    if not all(held.values()):
        values = {**vars(arch), "image tower": tower, "logit_bias": bias}
        received = ", ".join(f"{key}={values[key]!r}" for key in held if not held[key])
        raise ValueError(f"transformers has no class for these two towers. Received: {received}")
    text = hf.written_sizes(arch, SIZES) | {
        "model_type": f"{kind}_text_model",
        "eos_token_id": OPENAIS_END if arch.end_id is None else arch.end_id,
        "projection_size": arch.projection_dim,
    }
    inner = {key: value for key, value in vision.items() if key not in ("architectures", "dtype")}
    return {
        "architectures": [name],
        "model_type": kind,
        "projection_dim": arch.projection_dim,
        "text_config": text,
        "vision_config": {**inner, "model_type": f"{kind}_vision_model"},
        "dtype": "float32",
    }


POOLINGS = {"argmax": "largest", "eos": "end", "last": "last", "first": "first"}


LOGITS = ("logit_scale", "logit_bias")


class TransformersText(Format):
    architecture = TextArchitecture
    tensors = TRANSFORMERS
    marks = ("embeddings.token_embedding.weight",)
    ignored = (*LOGITS, "embeddings.position_ids")

    def infer(self, shapes, config):
        fields, is_clip = text_config(config), "eos_token_id" in KINDS[kind_of(config)][1]
        sizes = _sizes(TRANSFORMERS, shapes)
        fields.setdefault("projection_size", sizes["hidden_size"])
        projection = "projection_dim" if is_clip else "projection_size"
        expected = {field: sizes[name] for field, name in SIZES.items()}
        expected[projection] = sizes["projection_dim"]
        hf.check_fields(fields, expected)
        end = fields["eos_token_id"] if is_clip else None
        largest = config["model_type"] == "clip" and end == OPENAIS_END
        return sizes | {
            "num_heads": fields["num_attention_heads"],
            "gelu": gelu_of(fields["hidden_act"], False, "hidden_act"),
            "layer_norm_epsilon": fields["layer_norm_eps"],
            "causal": is_clip,
            "pooling": "largest" if largest else "end" if is_clip else "last",
            "end_id": None if largest else end,
        }


class OpenClipText(Format):
    architecture = TextArchitecture
    tensors = OPEN_CLIP
    marks = ("token_embedding.weight",)
    ignored = (*LOGITS, "attn_mask", "input_resolution", "context_length", "vocab_size")

    def infer(self, shapes, config):
        text = open_clip.model_field(config, "text_cfg") or {}
        if text.get("use_pad_mask") and text.get("no_causal_mask"):
            raise ValueError("Text towers must attend to padding. Received: use_pad_mask=true")
        sizes = _sizes(OPEN_CLIP, shapes)
        known, pooling = BlockOptions.__dataclass_fields__, text.get("pool_type", "argmax")
        check_choice(pooling, POOLINGS, "pool_type")
        heads = 8 if config.get(open_clip.CONFIG) else sizes["hidden_size"] // 64
        return sizes | {
            **{name: x for name, x in OPEN_CLIP.options(shapes).items() if name in known},
            **open_clip.computation_of(config, text),
            "num_heads": text.get("heads", heads),
            "causal": not text.get("no_causal_mask", False),
            "pooling": POOLINGS[pooling],
            "end_id": text.get("eos_id", 2) if pooling == "eos" else None,
        }


# By the image tower's format: the text tower's format, its prefix, and the image tower's prefix.
_OPEN_CLIP = (OpenClipText("text tower of OpenCLIP"), "text.", "visual.")
TEXT_FORMATS: dict[str, tuple[Format, str, str]] = {
    "huggingface": (TransformersText("text tower of transformers"), "text_model.", "vision_model."),
    **dict.fromkeys(("open_clip", "open_clip_timm"), _OPEN_CLIP),
}
