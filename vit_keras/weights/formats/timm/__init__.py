"""timm's state dicts of plain Vision Transformers (timm 1.0), and its folders.

These classes are read and written: VisionTransformer, DeiT's class with two tokens, Eva (EVA,
EVA-02, DINOv3, PE, RoPE-ViT) and Beit. NaFlexVit is read at the grid of its positions. It is
written to a folder if a model resizes positions in the same way, with "bilinear_antialias".

timm's `global_pool="avg"` normalizes after the mean, which is the classifier "gap_norm"; with
`fc_norm=False` timm normalizes before it, which is "gap". A projection without bias is written as a
head with a bias of zero. If positions cover the class token but not the registers, the position of
the class token is added to the token itself, as in timm.
"""

import dataclasses
from typing import Any

import numpy as np

from vit_keras.layers import Rope
from vit_keras.layers.common import ViTOptions
from vit_keras.models.architectures import (
    HybridArchitecture,
    Numerics,
    VisionTransformerArchitecture,
)
from vit_keras.weights.formats.base import Format
from vit_keras.weights.formats.tensor_links import Link, tensor_links
from vit_keras.weights.formats.tensor_names import TensorNames, pairs
from vit_keras.weights.formats.timm.names import (
    NAFLEX,
    is_eva,
    names_for,
    names_in,
    rotary_layout,
    stem_links,
)
from vit_keras.weights.formats.timm.reading import (
    NAFLEX_SIGLIP,
    architecture_of,
    infer,
    license_of,
    numerics,
    timm_arguments,
)

__all__ = ["FORMAT", "license_of"]

CLASS_TOKEN, POSITIONS = "cls/cls", "posembed_input/pos_embedding"
BUFFERS = "buffers."  # tensors computed from sizes


def canonical(name: str) -> str:
    """Translates the old name of the head's hidden layer."""
    if name.endswith((".relative_position_index", ".k_bias")) or name.startswith("rope.periods"):
        return f"{BUFFERS}{name}"
    return name.replace("pre_logits.fc.", "pre_logits.")


def detect(names: set[str]) -> bool:
    stem = {"patch_embed.proj.weight", "embeds.proj.weight"} & names
    attention = ("attn.qkv.weight", "attn.q_proj.weight", "in_proj.weight")
    return bool(stem) and any(f"blocks.0.{name}" in names for name in attention)


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    """Links a model to the tensors of a file, or to those to write."""
    row = names_for(arch) if names is None else names_in(names)
    if names is None and architecture_of(config or {}).startswith("naflexvit_"):
        row = dataclasses.replace(row, **NAFLEX)
    if row.patches == NAFLEX["patches"]:
        row = dataclasses.replace(row, linear_patches=_is_linear(config))
    if arch.options.rope is not None:
        reads = names is not None and config is not None and architecture_of(config)
        theirs = timm_arguments(config) if reads else None
        layout = rotary_layout(arch.options.rope, arch.options.pre_norm, theirs)
        row = dataclasses.replace(row, rotary=layout)
    result = tensor_links(_as_written(arch), row)
    if arch.num_classes is not None and not arch.options.head_use_bias:
        result = _without_bias(result, row, arch.num_classes)
    if _folds(arch):
        result = _folded(result, row)
    if isinstance(arch, HybridArchitecture):
        return stem_links(arch) + result
    return result


def _is_linear(config):
    return timm_arguments(config or {}).get("embed_proj_type", "linear") == "linear"


def _folds(arch):
    return arch.options.position_cover == "class" and arch.options.num_registers


def _as_written(arch):
    """Returns the equivalent architecture in timm: a bias in the head, folded positions."""
    cover = "patches" if _folds(arch) else arch.options.position_cover
    options = dataclasses.replace(arch.options, head_use_bias=True, position_cover=cover)
    return dataclasses.replace(arch, options=options)


def _without_bias(links, row: TensorNames, num_classes):
    """Links a projection to a head with zero bias; comes first, to fail before others are read.

    Raises:
        ValueError: On reading a file whose bias is not zero.
    """
    weight, bias = f"{row.head}.weight", f"{row.head}.bias"

    def read(kernel, offset):
        if offset.any():
            raise ValueError(
                f"A head without bias can be read only from a file whose {bias} is zero. "
                "Received: another bias; build the model with head_use_bias=True"
            )
        return (kernel.T,)

    write = lambda kernel: (kernel.T, np.zeros(num_classes, kernel.dtype))
    head = Link((weight, bias), ("head/kernel",), read, write)
    return [head, *(link for link in links if link.theirs not in ((weight,), (bias,)))]


def _folded(links, row: TensorNames):
    """Links the class token and its position to their sum, as in timm's DINOv2 with registers."""
    kept = [link for link in links if link.ours not in ((CLASS_TOKEN,), (POSITIONS,))]
    read = lambda cls, table: (cls, np.concatenate([np.zeros_like(cls), table], axis=1))
    write = lambda cls, table: (cls + table[:, :1], table[:, 1:])
    return [Link((row.cls, row.positions), (CLASS_TOKEN, POSITIONS), read, write), *kept]


POOLS = {"token": "token", "distilled": "token", "gap": "avg", "gap_norm": "avg", "map": "map"}
PE_SIZES = {"core": "base_patch16_224", "spatial": "base_patch16_512"}
ACTS = {"tanh": "gelu_tanh", "quick": "quick_gelu"}


def model_config(arch: VisionTransformerArchitecture) -> tuple[str, dict[str, Any]]:
    """Returns a timm architecture, and its arguments for `timm.create_model`."""
    write = {"Eva": _eva, "Beit": _beit}.get(timm_class(arch), _vision_transformer)
    return write(arch)


def _sizes(arch):
    """Returns the arguments that all classes share."""
    ratio = arch.mlp_dim / arch.hidden_size
    if int(arch.hidden_size * ratio) != arch.mlp_dim:  # timm rounds down
        ratio = (arch.mlp_dim + 0.5) / arch.hidden_size
    return {
        "img_size": list(arch.image_size),
        "patch_size": list(arch.patch_size),
        "embed_dim": arch.hidden_size,
        "depth": arch.num_layers,
        "num_heads": arch.num_heads,
        "mlp_ratio": ratio,
        "global_pool": POOLS.get(arch.classifier, ""),
        **({"in_chans": arch.channels} if arch.channels != 3 else {}),
    }


# The arguments of classes VisionTransformer and Eva that are options of ours by other names.
SAME = pairs(
    "qk_norm=qk_norm scale_attn_norm=attention_norm scale_mlp_norm=mlp_norm "
    "reg_tokens=num_registers pre_norm=pre_norm final_norm=final_norm "
    "pool_include_prefix=pool_all_tokens"
)
SAME_OF_EVA = pairs(
    "qk_norm=qk_norm scale_attn_inner=attention_norm scale_mlp=mlp_norm "
    "num_reg_tokens=num_registers use_pre_transformer_norm=pre_norm"
)
# The defaults of class VisionTransformer.
PLAIN: dict[str, Any] = {
    **{theirs: getattr(ViTOptions, ours) for theirs, ours in SAME.items()},
    "act_layer": "gelu",
    "qkv_bias": True,
    "init_values": 0,
    "no_embed_class": False,
    "pos_embed": "learn",
    "norm_layer": "layernorm",
}
XP: dict[str, Any] = {"no_embed_class": True, "pre_norm": True, "qk_norm": True, "qkv_bias": False}
XP |= {"norm_layer": "rmsnorm"}


def _vision_transformer(arch):
    options, is_gated = arch.options, arch.options.mlp == "swiglu"
    name, defaults = _plain_architecture(arch)
    arguments = {**_sizes(arch), "class_token": "cls" in arch.prefix.names}
    if is_gated:  # counts both halves
        arguments["mlp_ratio"] = 2 * (arch.mlp_dim + 0.25) / arch.hidden_size
    if arguments["global_pool"] == "avg" and arch.classifier != "gap_norm":
        arguments["fc_norm"] = False
    values = {
        **{theirs: getattr(options, ours) for theirs, ours in SAME.items()},
        "act_layer": "gelu" if is_gated else ACTS.get(arch.gelu, "gelu"),
        "qkv_bias": options.qkv_bias != "none",
        "init_values": options.layer_scale or 0,
        "no_embed_class": options.position_cover != "all",
        "pos_embed": "learn" if arch.position_embedding == "learned" else "none",
        "norm_layer": "rmsnorm" if options.norm == "rms" else "layernorm",
    }
    defaults = {**PLAIN, **defaults}
    return name, arguments | {k: v for k, v in values.items() if v != defaults[k]}


def _plain_architecture(arch):
    """Returns an architecture with the class, blocks and epsilon of the model, and its defaults."""
    options = arch.options
    if options.parallel:
        return "vit_base_patch16_xp_224", XP
    if "dist" in arch.prefix.names:
        return "deit_tiny_distilled_patch16_224", {}
    if options.mlp == "swiglu":
        return "vit_giant_patch14_dinov2", {"init_values": 1e-5}
    if arch.layer_norm_epsilon == 1e-5 and options.norm == "layer":
        return "vit_base_patch32_clip_224", {"pre_norm": True}
    return "vit_base_patch16_224", {}


def is_for_any_grid(arch: VisionTransformerArchitecture, numerics: Numerics) -> bool:
    """Whether only timm's class NaFlexVit resizes as the model does, and can hold the model."""
    options = arch.options
    resizes = numerics.resizing.positions == "bilinear_antialias"
    has_positions = arch.position_embedding == "learned" and not options.crop_to_patches
    patches_only = options.position_cover == "patches" or not arch.prefix.count
    is_plain = timm_class(arch) == "VisionTransformer" and options.mlp == "gelu"
    return resizes and has_positions and patches_only and is_plain


def _naflex(arch):
    """Describes a NaFlexVit with a table of positions for the model's grid."""
    _, arguments = _vision_transformer(arch)
    for key in ("img_size", "no_embed_class", "pos_embed"):
        arguments.pop(key, None)
    if "scale_attn_norm" in arguments:
        arguments["scale_attn_inner_norm"] = arguments.pop("scale_attn_norm")
    grid = {"pos_embed_grid_size": list(arch.grid)}
    explicit = {
        "act_layer": ACTS.get(arch.gelu, "gelu"),
        "fc_norm": arch.classifier == "gap_norm",
        "pre_norm": arch.options.pre_norm,
    }
    return NAFLEX_SIGLIP, {**arguments, **grid, **explicit}


def _eva(arch):
    options, rope, names = arch.options, arch.options.rope, names_for(arch)
    has_own_gate = names.gate != names.dense_0 and not options.mlp_norm
    arguments = _sizes(arch) | {
        **{theirs: getattr(options, ours) for theirs, ours in SAME_OF_EVA.items()},
        "class_token": "cls" in arch.prefix.names,
        "no_embed_class": options.position_cover != "all",
        "use_abs_pos_emb": arch.position_embedding == "learned",
        "qkv_bias": options.qkv_bias != "none",
        "attn_type": "rope" if options.qkv_bias == "all" else "eva",
        "qkv_fused": not names.query,
        "swiglu_mlp": options.mlp == "swiglu",
        "swiglu_align_to": int(has_own_gate),
        "use_fc_norm": arch.classifier == "gap_norm",
        "use_post_transformer_norm": options.final_norm and arch.classifier != "gap_norm",
        "use_rot_pos_emb": rope is not None,
    }
    if options.layer_scale is not None:
        arguments["init_values"] = options.layer_scale
    if arch.classifier == "map":
        arguments["attn_pool_num_heads"] = options.map_heads or arch.num_heads
        hidden = options.map_mlp_dim or arch.mlp_dim
        arguments["attn_pool_mlp_ratio"] = (hidden + 0.25) / arch.hidden_size
    if rope is not None:
        arguments |= _rope(arch, rope)
    return _eva_architecture(arch), arguments


def _rope(arch, rope: Rope) -> dict[str, Any]:
    layout = rotary_layout(rope, arch.options.pre_norm)
    kind = "mixed" if rope.mixed else "dinov3" if rope.centered else "cat"
    arguments = {
        "rope_type": kind,
        "rope_temperature": rope.base,
        "rope_grid_offset": rope.offset,
        "rope_grid_indexing": "xy" if rope.mixed or layout.endswith("columns_first") else "ij",
        "rope_rotate_half": layout == "halves",
    }
    if kind == "cat" and rope.reference is not None:
        arguments["ref_feat_shape"] = list(rope.reference)
    elif kind == "cat" and arch.layer_norm_epsilon == 1e-5 and arch.options.layer_scale is None:
        arguments["ref_feat_shape"] = list(arch.grid)  # PE has one: no effect at this size
    return arguments


def _eva_architecture(arch):
    """Returns an architecture with the model's epsilon, LayerScale and reference grid."""
    options, rope = arch.options, arch.options.rope
    has_scale, has_reference = options.layer_scale is not None, rope is not None and rope.reference
    if arch.layer_norm_epsilon == 1e-5:
        if has_scale and not has_reference:
            name = "vit_small_plus_patch16" if options.mlp == "swiglu" else "vit_small_patch16"
            return f"{name}_dinov3" + ("" if options.qkv_bias == "none" else "_qkvb")
        pooled = "spatial" if arch.classifier != "map" else "core"
        return (
            "vit_pe_lang_large_patch14_448" if has_scale else f"vit_pe_{pooled}_{PE_SIZES[pooled]}"
        )
    if has_scale and not has_reference:
        kind = "mixed_" if rope is not None and rope.mixed else ""
        return f"vit_small_patch16_rope_{kind}224"
    if has_scale or not has_reference:
        return "vit_base_patch16_rope_reg1_gap_256" if has_scale else "eva_giant_patch14_224"
    if options.attention_norm:
        return "eva02_base_patch16_clip_224"
    return "eva02_base_patch14_448" if options.mlp_norm else "eva02_small_patch14_336"


def _beit(arch):
    options = arch.options
    arguments = _sizes(arch) | {
        "qkv_bias": options.qkv_bias != "none",
        "swiglu_mlp": options.mlp == "swiglu",
        "scale_mlp": options.mlp_norm,
        "init_values": options.layer_scale or 0,
        "use_fc_norm": arch.classifier == "gap_norm",
    }
    return "beit_base_patch16_224", arguments


def config_files(arch: VisionTransformerArchitecture, numerics: Numerics) -> dict[str, dict]:
    """Returns the `config.json` of a model, which `timm.create_model` can build."""
    if isinstance(arch, HybridArchitecture):
        raise ValueError(
            "A timm folder describes a plain Vision Transformer; a hybrid is written to a "
            f".safetensors or .pth file. Received: resnet_layers={arch.resnet_layers}"
        )
    name, arguments = _naflex(arch) if is_for_any_grid(arch, numerics) else model_config(arch)
    pixels, crop = numerics.preprocessing, numerics.preprocessing.crop_fraction
    heads: Any = ["head", "head_dist"] if "dist" in arch.prefix.names else "head"
    source = {
        "input_size": [arch.channels, *arch.image_size],
        "interpolation": pixels.interpolation,
        "crop_pct": 1.0 if crop is None else crop,
        "crop_mode": "squash" if crop is None else "center",
        "mean": list(pixels.mean) * (arch.channels if len(pixels.mean) == 1 else 1),
        "std": list(pixels.std) * (arch.channels if len(pixels.std) == 1 else 1),
        "num_classes": arch.num_classes or 0,
        "first_conv": "embeds.proj" if name == NAFLEX_SIGLIP else "patch_embed.proj",
        "classifier": heads,
    }
    config = {
        "architecture": name,
        "num_classes": arch.num_classes or 0,
        "num_features": arch.hidden_size,
        "global_pool": POOLS.get(arch.classifier, ""),
        "model_args": arguments,
        "pretrained_cfg": source,
    }
    names = numerics.class_names
    return {"config.json": {**config, **({} if names is None else {"label_names": list(names)})}}


def timm_class(arch: VisionTransformerArchitecture) -> str:
    """Returns the name of timm's class, or block, to write a model for."""
    if arch.position_embedding == "relative_2d":
        return "Beit"
    if arch.options.parallel:
        return "ParallelScalingBlock"
    if "dist" in arch.prefix.names:
        return "VisionTransformerDistilled"
    return "Eva" if is_eva(arch) else "VisionTransformer"


# The arguments that a class fixes.
FIXED: dict[str, dict[str, Any]] = {
    "Eva": {"gelu": "exact", "norm": "layer"},
    "Beit": {"gelu": "exact", "norm": "layer", "class_token": True},
    "VisionTransformerDistilled": {"position_cover": "all"},
    "ParallelScalingBlock": {"map_mlp_dim": None},
}


def as_read(arch: VisionTransformerArchitecture) -> dict:
    """Returns what `links` writes in another form, and the arguments that the class fixes."""
    folded = {"position_cover": "class"} if _folds(arch) else {}
    bias = {"head_use_bias": arch.options.head_use_bias}  # without one, zeros are written
    return {**bias, **folded, **FIXED.get(timm_class(arch), {})}


FORMAT = Format(
    name="timm",
    suffixes=(".safetensors", ".pth"),
    detect=detect,
    infer=infer,
    links=links,
    numerics=numerics,
    canonical=canonical,
    head=("head.", "head_dist.", "pre_logits."),
    ignored=(BUFFERS,),
    as_read=as_read,
    config_files=config_files,
)
