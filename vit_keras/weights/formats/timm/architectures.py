"""timm's names for tensors and architectures, and what a file's shapes and arguments say about
its model.

All of timm's classes share one `TensorNames`, which includes their different spellings.
"""

import dataclasses
import math
import re
from typing import Any

from vit_keras.layers import Rope
from vit_keras.layers.common import changed_options, check_choice, pair
from vit_keras.models import Preprocessing
from vit_keras.models.architectures import Numerics, grid_of
from vit_keras.support.preprocessing import Resizing
from vit_keras.weights.formats.base import COVERS, covered_positions, gelu_of, pairs, resnet_sizes
from vit_keras.weights.formats.tensor_names import TensorNames

# The names of some tensors in other classes and files.
# The block ParallelScalingBlock, of ViT-22B.
PARALLEL = pairs(
    "norm_0=in_norm qkv=in_proj. norm_2= parallel_bias=mlp_bias query_norm=q_norm key_norm=k_norm "
    "attention_norm= out=attn_out_proj gate= mlp_norm= dense_0=in_proj dense_1=mlp_out_proj "
    "scale_0=ls.gamma scale_1="
)
# Classes Eva and Beit: another LayerScale, and separate biases for queries and values.
EVA = {**pairs("scale_0=gamma_1 scale_1=gamma_2 dist="), "rms": False}
BEIT = pairs("registers= pre_norm= query_norm= key_norm= attention_norm= pool_probe=")
QV_BIAS = pairs("query_bias=attn.q_bias value_bias=attn.v_bias")
SEPARATE = pairs("qkv= query=attn.q_proj key=attn.k_proj value=attn.v_proj")
GATE = pairs("gate=mlp.fc1_g dense_0=mlp.fc1_x")
# Class NaFlexVit: these names replace those before the blocks.
NAFLEX = {
    **pairs("patches=embeds.proj cls=embeds.cls_token registers=embeds.reg_token"),
    **pairs("positions=embeds.pos_embed"),
    "position_axes": 4,
}
PLAIN = TensorNames.of(
    "patches=patch_embed.proj cls=cls_token dist=dist_token registers=reg_token "
    "positions=pos_embed pre_norm=norm_pre block=blocks.{}. norm_0=norm1 qkv=attn.qkv. "
    "query_norm=attn.q_norm key_norm=attn.k_norm attention_norm=attn.norm out=attn.proj "
    "scale_0=ls1.gamma norm_2=norm2 gate=mlp.fc1 dense_0=mlp.fc1 mlp_norm=mlp.norm "
    "dense_1=mlp.fc2 scale_1=ls2.gamma norm=norm pooled_norm=fc_norm pre_logits=pre_logits "
    "head_dist=head_dist head=head pool_probe=attn_pool.latent pool_query=attn_pool.q "
    "pool_kv=attn_pool.kv pool_out=attn_pool.proj pool_norm=attn_pool.norm "
    "pool_dense_0=attn_pool.mlp.fc1 pool_dense_1=attn_pool.mlp.fc2 frequencies=rope.freqs "
    "relative=attn.relative_position_bias_table",
    rms=True,
    spellings=[PARALLEL, EVA, QV_BIAS, SEPARATE, GATE, NAFLEX],
)


def is_gated(shapes: dict[str, tuple[int, ...]]) -> bool:
    """Whether the MLPs in a file are SwiGLUs."""
    return bool(shapes) and PLAIN.among(shapes).options(shapes).get("mlp") == "swiglu"


# Of timm's classes: names of tensors, an architecture of the class, and arguments it fixes.
CLASSES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "VisionTransformer": ({}, "", {}),
    "VisionTransformerDistilled": (
        pairs("registers= gate="),
        "deit_tiny_distilled_patch16_224",
        {"position_cover": "all"},
    ),
    "ParallelScalingBlock": (PARALLEL, "vit_base_patch16_xp_224", {"map_mlp_dim": None}),
    "Eva": (EVA, "", {"gelu": "exact", "norm": "layer"}),
    "Beit": (
        {**EVA, **BEIT, **QV_BIAS},
        "beit_base_patch16_224",
        {"gelu": "exact", "norm": "layer", "class_token": True},
    ),
}


def timm_class(arch) -> str:
    """Returns the name of timm's class, or block, to write a model for."""
    options, is_gated = arch.options, arch.options.mlp == "swiglu"
    if arch.position_embedding.endswith("relative_2d"):
        return "Beit"
    if options.parallel:
        return "ParallelScalingBlock"
    if "dist" in arch.prefix.names:
        return "VisionTransformerDistilled"
    is_eva = options.qkv_bias == "qv" or options.rope is not None
    if arch.classifier == "map":  # with a pool unlike that of class VisionTransformer
        is_eva = is_eva or is_gated or (options.map_heads, options.map_mlp_dim) != (None, None)
    return "Eva" if is_eva or (is_gated and options.mlp_norm) else "VisionTransformer"


def names_for(arch) -> TensorNames:
    """Returns the row of the class to write a model for."""
    kind, options = timm_class(arch), arch.options
    changes = dict(CLASSES[kind][0])
    is_gated, centered = options.mlp == "swiglu", options.rope and options.rope.centered
    if kind == "Beit" and is_gated:
        changes |= GATE
    elif kind == "Eva":
        changes |= GATE if is_gated and (options.mlp_norm or centered) else {}
        separate = is_gated and options.mlp_norm  # as in EVA-02
        changes |= SEPARATE if separate else QV_BIAS if options.qkv_bias != "all" else {}
    return PLAIN.replaced("pre_logits=", **changes)


# What follows only from the names of timm's architectures, as timm's arguments (timm 1.0.31).
# The tensors of a file determine most of a model. The rest are the values of an architecture's
# entry point, overridden by `model_args` in `config.json`.
# Every row whose pattern matches a name counts; later rows override earlier ones.
# `norm_eps` stands for the epsilon in `norm_layer`, which JSON cannot hold.
# `pools_all` and `resizing` stand for what timm's code computes.
RESIZING = Resizing("bicubic_antialias", "bicubic_antialias", crops=True)
DEFAULTS: dict[str, Any] = {
    "global_pool": "token",
    "act_layer": "gelu",
    "norm_eps": 1e-6,
    "final_norm": True,
    "no_embed_class": False,
    "pool_include_prefix": False,
    "use_rot_pos_emb": False,
    "rope_type": "cat",
    "rope_temperature": 10000.0,
    "rope_grid_offset": 0.0,
    "rope_grid_indexing": "ij",
    "rope_rotate_half": False,
    "pools_all": False,
    "resizing": RESIZING,
}
ROPE = {"use_rot_pos_emb": True}
ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    # Pooling.
    (r"^(eva|beit)|_gap|_rope_reg|_pe_|_dinov3|^test_vit[24]", {"global_pool": "avg"}),
    (r"^eva.*_clip_", {"global_pool": "token"}),
    (r"_siglip_\d|_siglip$|_map(_|$)|_pe_core_|^test_vit3", {"global_pool": "map"}),
    (r"^test_vit3|_pe_core_", {"pool_include_prefix": True}),
    (r"^eva|_pe_|_rope_|_dinov3|_lingbot", {"pools_all": True}),  # also the tokens before patches
    # Normalization.
    (r"^vit(_.*)?(_clip_|_pe_|_dinov3|_lingbot)|^beit3_", {"norm_eps": 1e-5}),
    (r"_pe_(lang|spatial)_|_radio_|_intern300m_", {"final_norm": False}),
    # Activation: SigLIPs were trained with the approximation, but timm computes only these with it.
    (r"base_patch32_siglip|large_patch16_siglip_(gap_)?512|giantopt_", {"act_layer": "gelu_tanh"}),
    (r"so400m_patch16_siglip|^naflexvit_.*siglip", {"act_layer": "gelu_tanh"}),
    (r"_quickgelu_", {"act_layer": "quick_gelu"}),
    # The tokens that positions cover.
    (r"^deit3_|^flexivit_|^naflexvit_|_xp_|_radio_|_ape_", {"no_embed_class": True}),
    (r"reg\d_(dinov2|tipsv2)|^vit_(?!so150m).*(?<!rope_)reg\d_gap_", {"no_embed_class": True}),
    # Rotary positions.
    (r"^eva02_(?!enormous)|_rope_reg", {**ROPE, "ref_feat_shape": (16, 16)}),
    (r"_pe_", {**ROPE, "rope_grid_indexing": "xy", "rope_grid_offset": 1.0}),
    (r"_pe_core_", {"attn_pool_num_heads": 8, "ref_feat_shape": (24, 24)}),
    (r"_pe_core_base_", {"ref_feat_shape": (14, 14)}),
    (r"_pe_core_gigantic_|_pe_(lang|spatial)_", {"ref_feat_shape": (32, 32)}),
    (r"_pe_.*gigantic_", {"rope_grid_offset": 0.0}),
    (r"_rope_(?!reg)", {**ROPE, "rope_grid_indexing": "xy", "rope_temperature": 100.0}),
    (r"_rope_mixed_", {"rope_type": "mixed", "rope_temperature": 10.0}),
    (r"_dinov3|_lingbot", {**ROPE, "rope_type": "dinov3", "rope_rotate_half": True}),
    (r"_dinov3|_lingbot", {"rope_temperature": 100.0}),
    # Models for any grid.
    (r"^naflexvit_", {"global_pool": "map", "rope_type": "", "pos_embed_interp_mode": "bicubic"}),
    (r"^naflexvit_", {"pos_embed_antialias": True, "pos_embed_grid_size": (16, 16)}),
    (r"^naflexvit_.*_gap$", {"global_pool": "avg"}),
    (r"^naflexvit_.*siglip", {"pos_embed_interp_mode": "bilinear"}),
    # The rules for other sizes.
    (r"^beit(v2)?_", {"resizing": dataclasses.replace(RESIZING, biases="bilinear_geometric")}),
    (r"flexi|radio", {"resizing": Resizing("bilinear_half_pixel", crops=True)}),
    (r"(base|huge)_patch16_radio_v3", {"resizing": Resizing("bilinear", crops=True)}),
    # The number of heads.
    (r"_base(_|$)", {"num_heads": 12}),
    (r"_base_patch16_gap_", {"num_heads": 16}),
    (r"_(large|huge|giant|giantopt|gigantic|so400m|intern300m)(_|$)", {"num_heads": 16}),
    (r"_betwixt_", {"num_heads": 10}),
    (r"_mediumd?_", {"num_heads": 8}),
    (r"_small(_|$)", {"num_heads": 6}),
    (r"_little_", {"num_heads": 5}),
    (r"_p?wee_|_xsmall_", {"num_heads": 4}),
    (r"_so150m_|_base_patch\d+_plus_", {"num_heads": 14}),
    (r"_so150m2_", {"num_heads": 13}),
    (r"_giant_.*(dinov2|tipsv2|radio|lingbot)", {"num_heads": 24}),
    (r"_huge_plus_", {"num_heads": 20}),
    (r"_7b_", {"num_heads": 32}),
    (r"^test_vit2?$", {"num_heads": 2}),
    (r"^test_vit[34]$|_tiny_", {"num_heads": 3}),
)
# What no option of `VisionTransformer` covers, by patterns of timm's arguments, sorted by name.
UNKNOWN = {
    r"architecture=(\S*_rpn_|eva02_enormous_)|use_post_norm=(True|1)|block_fn=\S*ResPostBlock": (
        "normalization after attention and after the MLP"
    ),
    r"architecture=(\S*(_\d+x2_|_d(little_|pwee_|wee_)|_sapiens2 )|aimv2_)": "these blocks",
    r"architecture=(\S*_parfac_|naflexvit_\S*(_par_|_radio_))": "these patches or positions",
    r"global_pool=(max|avgmax|prr) ": "this pooling",
    r"global_pool=avg .*pool_include_prefix=(True|1)": "a mean of all tokens",
    r"patchify_channels_last=(False|0)": "patches whose channels come first",
    r"pos_embed_ar_preserving=(True|1)": "positions that are resized to a square and cropped",
    r"pos_embed_align_corners=(True|1)": "positions that are resized with aligned corners",
    r"rope_grid_indexing=xy .*rope_rotate_half=(True|1) .*rope_type=(?!mixed)": "this rotation",
    r"rope_grid_offset=(?!0(\.0)? ).*rope_type=dinov3": "an offset of centered positions",
}


def timm_arguments(config: dict) -> dict[str, Any]:
    """Returns timm's arguments that follow from a `config.json`, not from tensors.

    Args:
        config: The content of `config.json`; empty for timm's defaults.

    Raises:
        ValueError: No option of `VisionTransformer` covers the architecture or an argument.
    """
    name, changed = architecture_of(config), dict(config.get("model_args") or {})
    if "global_pool" in config:
        changed.setdefault("global_pool", config["global_pool"])
    if isinstance(changed.get("norm_layer"), str):
        changed["norm_eps"] = 1e-6  # timm's default for every name that JSON can hold
    arguments = dict(DEFAULTS)
    for pattern, row in ROWS:
        arguments |= row if re.search(pattern, name) else {}
    arguments |= {key: value for key, value in changed.items() if value is not None}
    arguments["architecture"] = name
    if name.startswith("naflexvit_"):
        arguments["use_rot_pos_emb"] = arguments["rope_type"] not in ("", "none")
    text = "".join(f"{key}={value} " for key, value in sorted(arguments.items()))
    for pattern, what in UNKNOWN.items():
        if match := re.search(rf"\b{pattern}", text):
            raise ValueError(
                f"No option of VisionTransformer corresponds to {what}, which timm's model "
                f"requires. Received: {match[0]}"
            )
    return arguments


def architecture_of(config: dict) -> str:
    """Returns the name of timm's architecture in a `config.json`, without a tag; "" for none."""
    return str(config.get("architecture", "")).split(".")[0]


def pretrained_of(config: dict) -> dict[str, Any]:
    """Returns the part of a `config.json` about the images and the license; all of it if old."""
    return config.get("pretrained_cfg", config) or {}


GATED = "SwiGLU"  # among the names, marks a gate
NAFLEX_SIGLIP = "naflexvit_base_patch16_siglip"
# The architecture of files without a configuration, by names that they have and lack.
ASSUMED: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("reg_token", "cls_token", "blocks.0.gamma_1"), ("pos_embed",), "vit_small_patch16_dinov3"),
    (("reg_token", "blocks.0.gamma_1"), ("pos_embed",), "vit_base_patch16_rope_reg1_gap_256"),
    (("rope.freqs",), (), "vit_base_patch16_rope_mixed_224"),
    (("blocks.0.attn.relative_position_bias_table",), (), "beit_base_patch16_224"),
    (("blocks.0.gamma_1",), (), "vit_base_patch16_rope_224"),
    (("blocks.0.attn.q_bias", GATED), (), "eva02_small_patch14_224"),
    (("blocks.0.attn.q_bias", "norm.weight"), (), "eva_giant_patch14_clip_224"),
    (("blocks.0.attn.q_bias",), (), "eva_giant_patch14_224"),
    (("blocks.0.attn.q_proj.weight", "fc_norm.weight"), (), "eva02_base_patch14_224"),
    (("blocks.0.attn.q_proj.weight",), (), "eva02_base_patch16_clip_224"),
    (("blocks.0.in_proj.weight",), (), "vit_base_patch16_xp_224"),
    (("norm_pre.weight", "attn_pool.latent", "cls_token"), (), "vit_pe_core_base_patch16_224"),
    (("norm_pre.weight", "attn_pool.latent"), (), "vit_pe_core_gigantic_patch14_448"),
    (("norm_pre.weight",), (), "vit_base_patch16_clip_224"),
    (("embeds.proj.weight", "attn_pool.latent"), ("embeds.reg_token",), NAFLEX_SIGLIP),
    (("embeds.proj.weight",), (), "naflexvit_base_patch16_gap"),
)


def arguments_of(config: dict, shapes: dict) -> dict[str, Any]:
    """Returns timm's arguments for a file; without a configuration, those of its likeliest class.

    Args:
        config: The content of `config.json`.
        shapes: `{canonical name: shape}`.
    """
    if architecture_of(config):
        return timm_arguments(config)
    tensors = {*shapes, GATED} if is_gated(shapes) else {*shapes}
    fits = lambda held, absent: tensors.issuperset(held) and tensors.isdisjoint(absent)
    name = next((name for *sets, name in ASSUMED if fits(*sets)), "")
    assumed = timm_arguments({**config, "architecture": name})
    for key in ("num_heads", "no_embed_class"):  # these differ within a class
        assumed.pop(key, None)
    if "_pe_" in name:  # its training grid is the file's
        assumed["ref_feat_shape"] = None
    return {**assumed, **(config.get("model_args") or {})}


def infer(shapes: dict, config: dict) -> dict:
    """Returns the arguments of the model from shapes and configuration."""
    names, theirs = PLAIN.among(shapes), arguments_of(config, shapes)
    kind = _classifier(shapes, theirs, config)
    flat = theirs.get("patch_size"), theirs.get("in_chans", 3)
    sizes = names.sizes(shapes, kind, *flat)
    for root in (f"{BACKBONE}.conv.weight", f"{BACKBONE}.stem.conv.weight"):
        if root in shapes:
            sizes |= resnet_sizes(shapes, root, UNITS, (1, 0))
    others = names.cls in shapes, names.registers in shapes
    pools_all = theirs["pool_include_prefix"] or theirs["pools_all"]
    heads = theirs.get("attn_pool_num_heads")
    ends_bare = not theirs["final_norm"] or theirs.get("use_post_transformer_norm") is False
    sizes |= {
        "class_token": others[0] and kind in ("gap", "gap_norm", "map"),
        "pool_all_tokens": kind == "map" and pools_all and any(others),
        "map_heads": heads if kind == "map" and heads != theirs.get("num_heads") else None,
        "final_norm": not (ends_bare and {"norm.weight", "fc_norm.weight"}.isdisjoint(shapes)),
        "rope": _rope_of(theirs) if theirs["use_rot_pos_emb"] else None,
    }
    sizes = changed_options(sizes)
    if "num_heads" in theirs:
        sizes["num_heads"] = theirs["num_heads"]
    sizes |= _image_size(sizes, names, shapes, theirs, config)
    if "rope" in sizes and theirs.get("ref_feat_shape", ()) is None and "image_size" in sizes:
        sizes["rope"] = dataclasses.replace(sizes["rope"], reference=grid_of(sizes))
    return sizes


BACKBONE = "patch_embed.backbone"
UNITS = r"patch_embed\.backbone\.stages\.(\d+)\.blocks\.(\d+)\."


def _classifier(shapes, theirs, config):
    """Returns the input of a file's classifier."""
    stated = {**config, **(config.get("model_args") or {})}.get("global_pool")
    if "attn_pool.latent" in shapes:
        return "map"
    if "dist_token" in shapes:
        return "distilled"
    if "fc_norm.weight" in shapes and stated not in ("token", ""):  # it follows a mean
        return "gap_norm"
    has_cls = not {"cls_token", "embeds.cls_token"}.isdisjoint(shapes)
    return "token" if has_cls and theirs["global_pool"] != "avg" else "gap"


def _rope_of(theirs):
    """Returns the rotary positions that timm's arguments describe."""
    base, kind = float(theirs["rope_temperature"]), theirs["rope_type"]
    check_choice(kind, ("cat", "axial", "mixed", "dinov3"), "rope_type")
    if kind in ("mixed", "dinov3"):
        return Rope(base=base, mixed=kind == "mixed", centered=kind == "dinov3")
    reference = theirs.get("ref_feat_shape", theirs.get("rope_ref_feat_shape"))
    reference = None if reference is None else pair(reference, "ref_feat_shape")
    return Rope(base=base, offset=float(theirs["rope_grid_offset"]), reference=reference)


def _image_size(sizes, names, shapes, theirs, config):
    """Returns the size of the images, and the tokens that positions cover."""
    table, patch_size = shapes.get(names.positions), sizes["patch_size"]
    stated = theirs.get("img_size", pretrained_of(config).get("input_size", [None])[1:])  # C, H, W
    if table is not None and len(table) == 4:
        size = [side * patch for side, patch in zip(table[1:3], patch_size)]
        return covered_positions(sizes, table[1] * table[2], size, ("patches",))
    if table is None:
        if not stated and sizes.get("position_embedding") == "relative_2d":
            offsets = math.isqrt(shapes[names.of_block(0, names.relative)][0] - 3)
            stated = tuple((offsets + 1) // 2 * side for side in patch_size)
        return covered_positions(sizes, 0, stated)
    is_hybrid = sizes.get("resnet_layers") is not None
    covers: tuple[str, ...] = ("all",) if is_hybrid else COVERS
    if "no_embed_class" in theirs and not is_hybrid:
        patches_only = theirs["no_embed_class"] and sizes["classifier"] != "distilled"
        covers = ("patches" if patches_only else "all", *COVERS)
    return covered_positions(sizes, table[1], stated, covers, strict=False)


def numerics(shapes: dict, config: dict) -> Numerics:
    """Returns how timm computes and prepares images.

    Raises:
        ValueError: The MLP has an activation that `VisionTransformer` does not have.
    """
    theirs, source = arguments_of(config, shapes), pretrained_of(config)
    activation, gates = theirs["act_layer"], is_gated(shapes)
    if gates:
        activation = (config.get("model_args") or {}).get("act_layer") or "silu"
    crop = source.get("crop_pct", 0.9)
    preprocessing = Preprocessing(
        mean=tuple(source.get("mean", (0.5, 0.5, 0.5))),
        std=tuple(source.get("std", (0.5, 0.5, 0.5))),
        interpolation=source.get("interpolation", "bicubic"),
        crop_fraction=None if source.get("crop_mode") == "squash" and crop == 1 else crop,
    )
    labels = config.get("label_names")
    return Numerics(
        preprocessing=preprocessing,
        standardization="timm",
        group_norm_epsilon=1e-5,
        class_names=None if labels is None else tuple(labels),
        gelu=gelu_of(activation, gates, "act_layer"),
        layer_norm_epsilon=theirs["norm_eps"],
        resizing=_resizing(theirs),
    )


def license_of(config: dict) -> str | None:
    """Returns the license in a timm configuration, such as "apache-2.0"; None without one."""
    name = pretrained_of(config).get("license")
    return name if isinstance(name, str) else None


def _resizing(theirs):
    if (mode := theirs.get("pos_embed_interp_mode")) is None:
        return theirs["resizing"]
    plain = {"bilinear": "bilinear_half_pixel", "bicubic": "bicubic"}[mode]
    positions = f"{mode}_antialias" if theirs["pos_embed_antialias"] else plain
    return Resizing(positions, f"{mode}_antialias")
