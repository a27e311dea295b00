"""What follows only from the names of timm's architectures, as timm's arguments (timm 1.0.31).

The tensors of a file determine most of a model. The rest are arguments of timm's classes: the
values of an architecture's entry point, overridden by `model_args` in `config.json`.
"""

import re
from typing import Any

# Every row whose pattern matches a name counts; later rows override earlier ones.
# `norm_eps` stands for the epsilon in `norm_layer`, which JSON cannot hold.
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
}
ROPE = {"use_rot_pos_emb": True}
ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    # Pooling.
    (r"^(eva|beit)|_gap|_rope_reg|_pe_|_dinov3|^test_vit[24]", {"global_pool": "avg"}),
    (r"^eva.*_clip_", {"global_pool": "token"}),
    (r"_siglip_\d|_siglip$|_map(_|$)|_pe_core_|^test_vit3", {"global_pool": "map"}),
    (r"^test_vit3|_pe_core_", {"pool_include_prefix": True}),
    (r"_pe_core_", {"attn_pool_num_heads": 8}),
    # Normalization.
    (r"^vit(_.*)?(_clip_|_pe_|_dinov3|_lingbot)|^beit3_", {"norm_eps": 1e-5}),
    (r"_pe_(lang|spatial)_|_radio_|_intern300m_", {"final_norm": False}),
    # Activation: SigLIPs were trained with the approximation, but timm computes only these with it.
    (
        r"base_patch32_siglip|large_patch16_siglip_(gap_)?512|so400m_patch16_siglip|giantopt_"
        r"|^naflexvit_.*siglip",
        {"act_layer": "gelu_tanh"},
    ),
    (r"_quickgelu_", {"act_layer": "quick_gelu"}),
    # The tokens that positions cover.
    (
        r"^deit3_|^flexivit_|reg\d_(dinov2|tipsv2)|_xp_|_radio_|_ape_|^naflexvit_"
        r"|^vit_(?!so150m).*(?<!rope_)reg\d_gap_",
        {"no_embed_class": True},
    ),
    # Rotary positions.
    (r"^eva02_(?!enormous)|_rope_reg", {**ROPE, "ref_feat_shape": (16, 16)}),
    (r"_pe_", {**ROPE, "rope_grid_indexing": "xy", "rope_grid_offset": 1.0}),
    (r"_pe_core_", {"ref_feat_shape": (24, 24)}),
    (r"_pe_core_base_", {"ref_feat_shape": (14, 14)}),
    (r"_pe_core_gigantic_|_pe_(lang|spatial)_", {"ref_feat_shape": (32, 32)}),
    (r"_pe_.*gigantic_", {"rope_grid_offset": 0.0}),
    (r"_rope_(?!reg)", {**ROPE, "rope_grid_indexing": "xy", "rope_temperature": 100.0}),
    (r"_rope_mixed_", {"rope_type": "mixed", "rope_temperature": 10.0}),
    (
        r"_dinov3|_lingbot",
        {**ROPE, "rope_type": "dinov3", "rope_temperature": 100.0, "rope_rotate_half": True},
    ),
    # Models for any grid.
    (r"^naflexvit_", {"global_pool": "map", "rope_type": "", "pos_embed_interp_mode": "bicubic"}),
    (r"^naflexvit_", {"pos_embed_antialias": True, "pos_embed_grid_size": (16, 16)}),
    (r"^naflexvit_.*_gap$", {"global_pool": "avg"}),
    (r"^naflexvit_.*siglip", {"pos_embed_interp_mode": "bilinear"}),
)
# The number of heads; the first matching pattern counts.
HEADS: tuple[tuple[str, int], ...] = (
    (r"^test_vit[34]$", 3),
    (r"^test_vit2?$", 2),
    (r"_7b_", 32),
    (r"_huge_plus_", 20),
    (r"_giant_.*(dinov2|tipsv2|radio|lingbot)", 24),
    (r"_base_patch16_gap_", 16),
    (r"_base_patch\d+_plus_", 14),
    (r"_so150m2_", 13),
    (r"_so150m_", 14),
    (r"_tiny_", 3),
    (r"_p?wee_|_xsmall_", 4),
    (r"_little_", 5),
    (r"_small(_|$)", 6),
    (r"_mediumd?_", 8),
    (r"_betwixt_", 10),
    (r"_base(_|$)", 12),
    (r"_(large|huge|giant|giantopt|gigantic|so400m|intern300m)(_|$)", 16),
)
# Architectures whose tensors have the names of another computation, or that no option covers.
OTHERS: tuple[tuple[str, str], ...] = (
    (r"_rpn_", "it normalizes after attention and after the MLP"),
    (r"^eva02_enormous_", "it normalizes after attention and after the MLP"),
    (r"_\d+x2_", "its blocks have two attentions and two MLPs side by side"),
    (r"_d(little_|pwee_|wee_)", "it has differential attention"),
    (r"^aimv2_", "it normalizes the patches before adding positions, and has no biases"),
    (r"_sapiens2$", "several queries share a key, and attention alone has LayerScale"),
    (r"_parfac_", "its positions are a sum for rows and for columns"),
    (r"^naflexvit_.*(_par_|_radio_)", "it resizes positions to a square and crops them"),
)
# Arguments with values that no option of the model covers.
UNKNOWN_VALUES: tuple[tuple[str, tuple, str], ...] = (
    ("use_post_norm", (True,), "normalization after attention and after the MLP"),
    ("global_pool", ("max", "avgmax", "prr"), "this pooling"),
    ("rope_type", ("mrope",), "these rotary positions"),
    ("patchify_channels_last", (False,), "patches whose channels come first"),
    ("pos_embed", ("factorized",), "positions that are a sum for rows and for columns"),
    ("pos_embed_ar_preserving", (True,), "positions that are resized to a square and cropped"),
    ("pos_embed_align_corners", (True,), "positions that are resized with aligned corners"),
    ("block_fn", ("ResPostBlock",), "normalization after attention and after the MLP"),
)


def architecture_arguments(architecture: str) -> dict[str, Any]:
    """Returns timm's arguments that follow from an architecture's name, not from tensors.

    Args:
        architecture: The name of timm's entry point, or an empty string for timm's defaults.

    Raises:
        ValueError: `VisionTransformer` does not cover the architecture.
    """
    for pattern, reason in OTHERS:
        if re.search(pattern, architecture):
            raise ValueError(
                f"Models of timm's architecture {architecture!r} cannot be read: {reason}"
            )
    arguments = dict(DEFAULTS)
    for pattern, row in ROWS:
        if re.search(pattern, architecture):
            arguments |= row
    for pattern, heads in HEADS:
        if re.search(pattern, architecture):
            return {**arguments, "num_heads": heads}
    return arguments


def timm_arguments(config: dict) -> dict[str, Any]:
    """Returns the arguments of timm's model from a `config.json`.

    Args:
        config: The content of `config.json`; empty for none.

    Raises:
        ValueError: An argument has a value that no option of `VisionTransformer` covers.
    """
    name, changed = architecture_of(config), dict(config.get("model_args") or {})
    nested = changed.pop("cfg", None)  # NaFlexVit's own configuration
    changed = {**(nested if isinstance(nested, dict) else {}), **changed}
    if "global_pool" in config:
        changed.setdefault("global_pool", config["global_pool"])
    if isinstance(changed.get("norm_layer"), str):
        changed["norm_eps"] = 1e-6  # timm's own default, by every name that JSON can hold
    changed = {key: value for key, value in changed.items() if value is not None}
    arguments = {**architecture_arguments(name), **changed, "architecture": name}
    if name.startswith("naflexvit_"):
        arguments["use_rot_pos_emb"] = arguments["rope_type"] not in ("", "none")
    for key, values, what in UNKNOWN_VALUES:
        if arguments.get(key) in values:
            raise ValueError(
                f"No option of VisionTransformer stands for {what}, which the configuration of "
                f"timm's model has. Received: {key}={arguments[key]!r}"
            )
    return arguments


def architecture_of(config: dict) -> str:
    """Returns the name of timm's architecture in a `config.json`, without a tag; "" for none."""
    return str(config.get("architecture", "")).split(".")[0]


def pretrained_of(config: dict) -> dict[str, Any]:
    """Returns the part of a `config.json` about images and license; old files are all one part."""
    source = config.get("pretrained_cfg", config)
    return source if isinstance(source, dict) else {}
