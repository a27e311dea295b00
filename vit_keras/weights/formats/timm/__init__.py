"""timm's state dicts of plain Vision Transformers (timm 1.0), and its folders.

These classes are read and written: VisionTransformer, DeiT's class with two tokens, Eva (EVA,
EVA-02, DINOv3, PE, RoPE-ViT) and Beit. NaFlexVit is read at the grid of its positions. A
model is written to a folder as a NaFlexVit if it resizes positions like one, with
"bilinear_antialias".

timm's `global_pool="avg"` normalizes after the mean, which is the classifier "gap_norm"; with
`fc_norm=False` timm normalizes before it, which is "gap". A projection without bias is written as a
head with a bias of zero. If positions cover the class token but not the registers, the position of
the class token is added to the token itself, as in timm.
"""

import re
from typing import Any

import numpy as np

from vit_keras.models.architectures import HybridArchitecture
from vit_keras.weights.formats.base import Format, pairs, per_channel
from vit_keras.weights.formats.tensor_names import Link, constant
from vit_keras.weights.formats.timm import architectures
from vit_keras.weights.formats.timm.architectures import CLASSES, NAFLEX, PLAIN, timm_class

CLASS_TOKEN, POSITIONS = "cls/cls", "posembed_input/pos_embedding"
BUFFERS = "buffers."  # tensors computed from sizes


def _stem_layers(arch):
    """Returns the names of a hybrid's ResNet; a root without stages is one level higher."""
    backbone = architectures.BACKBONE
    root = f"{backbone}.stem" if arch.resnet_layers else backbone
    layers = {"conv_root": f"{root}.conv", "gn_root": f"{root}.norm"}
    for path in arch.paths:
        if match := re.match(r"(block(\d+)/unit(\d+)/(conv|gn)(\d|_proj))/", path):
            layer, block, unit, kind, number = match.groups()
            kind = {"conv": "conv", "gn": "norm"}[kind]
            part = f"downsample.{kind}" if number == "_proj" else f"{kind}{number}"
            layers[layer] = f"{backbone}.stages.{int(block) - 1}.blocks.{int(unit) - 1}.{part}"
    return layers


def _folds(arch):
    return arch.options.position_cover == "class" and arch.options.num_registers


# The layout of queries and keys in heads, by `rope_rotate_half` and `rope_grid_indexing`.
ROTARY = {(False, "ij"): "interleaved", (False, "xy"): "interleaved_columns_first"}
ROTARY[True, "ij"] = "halves"
POOLS = {"token": "token", "distilled": "token", "gap": "avg", "gap_norm": "avg", "map": "map"}
ACTS = {"tanh": "gelu_tanh", "quick": "quick_gelu"}


def _shared(arch):
    """Returns the arguments that the classes VisionTransformer and Eva share, without any None."""
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
        "class_token": "cls" in arch.prefix.names,
        "no_embed_class": arch.options.position_cover != "all",
        "qkv_bias": arch.options.qkv_bias != "none",
        "global_pool": POOLS.get(arch.classifier, ""),
        "in_chans": arch.channels if arch.channels != 3 else None,
    }


# The arguments of VisionTransformer and of Eva that are options of ours, with both names.
SAME = pairs(
    "qk_norm=qk_norm scale_attn_norm=attention_norm scale_mlp_norm=mlp_norm "
    "reg_tokens=num_registers pre_norm=pre_norm final_norm=final_norm "
    "pool_include_prefix=pool_all_tokens"
)
SAME_OF_EVA = pairs(
    "qk_norm=qk_norm scale_attn_inner=attention_norm scale_mlp=mlp_norm "
    "num_reg_tokens=num_registers use_pre_transformer_norm=pre_norm"
)


def _vision_transformer(arch):
    """Returns an architecture with the model's class, blocks and epsilon, and its arguments."""
    options, is_gated = arch.options, arch.options.mlp == "swiglu"
    is_clip = arch.layer_norm_epsilon == 1e-5 and options.norm == "layer"
    plain = "vit_base_patch32_clip_224" if is_clip else "vit_base_patch16_224"
    plain = "vit_giant_patch14_dinov2" if is_gated else plain
    is_usual = (options.norm == "rms") == options.parallel  # the architecture's norm is right
    arguments = _shared(arch) | {
        **{theirs: getattr(options, ours) for theirs, ours in SAME.items()},
        "pos_embed": "learn" if arch.position_embedding == "learned" else "none",
        "act_layer": None if is_gated else ACTS.get(arch.gelu, "gelu"),
        "init_values": options.layer_scale or (0 if is_gated else None),
        "fc_norm": False if arch.classifier == "gap" else None,
        "norm_layer": None if is_usual else "layernorm" if options.parallel else "rmsnorm",
    }
    if is_gated:  # timm counts both halves
        arguments["mlp_ratio"] = 2 * (arch.mlp_dim + 0.25) / arch.hidden_size
    return CLASSES[timm_class(arch)][1] or plain, arguments


def _is_for_any_grid(arch, numerics):
    """Whether timm's NaFlexVit can hold the model, and is the only class that resizes like it."""
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
        del arguments[key]
    arguments["scale_attn_inner_norm"] = arguments.pop("scale_attn_norm")
    arguments["fc_norm"] = arch.classifier == "gap_norm"
    return architectures.NAFLEX_SIGLIP, {**arguments, "pos_embed_grid_size": list(arch.grid)}


# Architectures by what JSON cannot say: whether the epsilon is 1e-5, and whether there are a
# LayerScale and a reference grid. PE's architectures have a grid, which has no effect at the size
# that is written.
EVAS = {
    (True, True, False): "vit_small_patch16_dinov3",
    (True, True, True): "vit_pe_lang_large_patch14_448",
    (True, False, False): "vit_pe_spatial_base_patch16_512",
    (True, False, True): "vit_pe_spatial_base_patch16_512",
    (False, True, False): "vit_small_patch16_rope_224",
    (False, True, True): "vit_base_patch16_rope_reg1_gap_256",
    (False, False, False): "eva_giant_patch14_224",
    (False, False, True): "eva02_base_patch16_clip_224",
}


def _eva(arch):
    options, rope, names = arch.options, arch.options.rope, architectures.names_for(arch)
    arguments = _shared(arch) | {
        **{theirs: getattr(options, ours) for theirs, ours in SAME_OF_EVA.items()},
        "use_abs_pos_emb": arch.position_embedding.startswith("learned"),
        "attn_type": "rope" if options.qkv_bias == "all" else "eva",
        "qkv_fused": not names.query,
        "swiglu_mlp": options.mlp == "swiglu",
        "swiglu_align_to": int(names.gate != names.dense_0 and not options.mlp_norm),
        "use_fc_norm": arch.classifier == "gap_norm",
        "use_post_transformer_norm": options.final_norm and arch.classifier != "gap_norm",
        "use_rot_pos_emb": rope is not None,
        "init_values": options.layer_scale,
    }
    if arch.classifier == "map":
        arguments["attn_pool_num_heads"] = options.map_heads or arch.num_heads
        hidden = options.map_mlp_dim or arch.mlp_dim
        arguments["attn_pool_mlp_ratio"] = (hidden + 0.25) / arch.hidden_size
    referenced = rope is not None and rope.reference is not None
    row = arch.layer_norm_epsilon == 1e-5, options.layer_scale is not None, referenced
    if rope is not None:
        kind = "mixed" if rope.mixed else "dinov3" if rope.centered else "cat"
        arguments |= {"rope_type": kind, "rope_temperature": rope.base, **_rope_order(arch)}
        arguments["rope_grid_offset"] = rope.offset
        if kind == "cat" and (referenced or row[:2] == (True, False)):  # PE has one
            arguments["ref_feat_shape"] = list(rope.reference or arch.grid)
    return EVAS[row], arguments


def _rope_order(arch):
    """Returns the arguments to write that determine the order of channels."""
    rope, pre_norm = arch.options.rope, arch.options.pre_norm  # before PE's blocks
    columns = not rope.centered and (pre_norm or rope.mixed or rope.reference is None)
    return {"rope_rotate_half": rope.centered, "rope_grid_indexing": "xy" if columns else "ij"}


def _beit(arch):
    """Describes a Beit, whose arguments are among Eva's."""
    arguments = _shared(arch) | {"init_values": arch.options.layer_scale or 0}
    shared = ("swiglu_mlp", "scale_mlp", "use_fc_norm", "use_abs_pos_emb")
    arguments |= {name: _eva(arch)[1][name] for name in shared}
    del arguments["class_token"], arguments["no_embed_class"]
    return CLASSES["Beit"][1], arguments


class Timm(Format):
    suffixes: tuple[str, ...] = (".safetensors", ".pth")
    folder_name = "model.safetensors"
    head: tuple[str, ...] = ("head.", "head_dist.", "pre_logits.")
    ignored: tuple[str, ...] = (BUFFERS,)
    infer, numerics = staticmethod(architectures.infer), staticmethod(architectures.numerics)

    def detect(self, names):
        stem = {"patch_embed.proj.weight", "embeds.proj.weight"} & names
        attention = ("attn.qkv.weight", "attn.q_proj.weight", "in_proj.weight")
        return bool(stem) and any(f"blocks.0.{name}" in names for name in attention)

    def canonical(self, name):
        """Translates the old name of the head's hidden layer."""
        unused = name.endswith((".relative_position_index", ".k_bias"))
        if unused or name.startswith("rope.periods"):
            return f"{BUFFERS}{name}"
        return name.replace("pre_logits.fc.", "pre_logits.")

    def links(self, arch, names, config):
        theirs = architectures.timm_arguments(config)
        row = architectures.names_for(arch) if names is None else PLAIN.among(names)
        if names is None and theirs["architecture"].startswith("naflexvit_"):
            row = row.replaced(**NAFLEX)
        if row.patches == NAFLEX["patches"]:
            row = row.replaced(linear_patches=theirs.get("embed_proj_type", "linear") == "linear")
        if (rope := arch.options.rope) is not None:
            order = theirs if theirs["architecture"] else _rope_order(arch)
            key = bool(order["rope_rotate_half"]), order["rope_grid_indexing"]
            row = row.replaced(rotary="interleaved" if rope.mixed else ROTARY[key])
        if isinstance(arch, HybridArchitecture):
            row = row.replaced(others=_stem_layers(arch))
        others = []  # which come first, so that they fail before others are read
        has_bias = names is None or f"{row.head}.bias" in names
        if arch.num_classes is not None and has_bias and not arch.options.head_use_bias:
            name = f"{row.head}.bias"
            rule = f"head_use_bias=False can be read only from a file whose {name} is zero"
            bias = constant(name, np.zeros(arch.num_classes), rule)
            read = lambda kernel, offset: (kernel.T, *bias.read(offset))
            write = lambda kernel: (kernel.T, *bias.write())
            others.append(Link((f"{row.head}.weight", name), ("head/kernel",), read, write))
        if _folds(arch):  # the class token and its position into their sum
            unfold = lambda cls, table: (cls, np.concatenate([np.zeros_like(cls), table], axis=1))
            fold = lambda cls, table: (cls + table[:, :1], table[:, 1:])
            others.append(Link((row.cls, row.positions), (CLASS_TOKEN, POSITIONS), unfold, fold))
        linked = {path for link in others for path in link.ours}
        return others + [link for link in row.links(arch, names) if link.path not in linked]

    def as_read(self, arch):
        """Returns what `links` writes in another form, and the arguments that the class fixes."""
        folded = {"position_cover": "class"} if _folds(arch) else {}
        bias = {"head_use_bias": arch.options.head_use_bias}  # without one, zeros are written
        return {**bias, **folded, **CLASSES[timm_class(arch)][2]}

    def config_files(self, arch, numerics):
        """Returns the `config.json` from which `timm.create_model` can build a model."""
        if isinstance(arch, HybridArchitecture):
            raise ValueError(
                "A timm folder describes a plain Vision Transformer; a hybrid is written to a "
                f".safetensors or .pth file. Received: resnet_layers={arch.resnet_layers}"
            )
        describe = {"Eva": _eva, "Beit": _beit}.get(timm_class(arch), _vision_transformer)
        is_naflex = _is_for_any_grid(arch, numerics)
        name, arguments = (_naflex if is_naflex else describe)(arch)
        pixels, crop = numerics.preprocessing, numerics.preprocessing.crop_fraction
        source = {
            "input_size": [arch.channels, *arch.image_size],
            "interpolation": pixels.interpolation,
            "crop_pct": 1.0 if crop is None else crop,
            "crop_mode": "squash" if crop is None else "center",
            "mean": per_channel(pixels.mean, arch.channels),
            "std": per_channel(pixels.std, arch.channels),
            "num_classes": arch.num_classes or 0,
            "first_conv": NAFLEX["patches"] if is_naflex else PLAIN.patches,
            "classifier": ["head", "head_dist"] if "dist" in arch.prefix.names else "head",
        }
        config: dict[str, Any] = {
            "architecture": name,
            "num_classes": arch.num_classes or 0,
            "num_features": arch.hidden_size,
            "global_pool": POOLS.get(arch.classifier, ""),
            "model_args": {key: value for key, value in arguments.items() if value is not None},
            "pretrained_cfg": source,
        }
        if numerics.class_names is not None:
            config["label_names"] = list(numerics.class_names)
        return {"config.json": config}
