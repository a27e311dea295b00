"""timm's names for its tensors: one row for each of its classes, and the choice between them."""

import re

from vit_keras.layers import Rope
from vit_keras.models.architectures import HybridArchitecture, VisionTransformerArchitecture
from vit_keras.weights.formats.base import Link
from vit_keras.weights.formats.tensor_names import (
    LEAVES,
    TensorNames,
    in_pytorch,
    pairs,
    resnet_sizes,
)

# What other classes and files call some tensors. DeiT's class has two tokens.
DISTILLED = pairs("registers= gate=")
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
COLUMNS_FIRST = {"ij": "interleaved", "xy": "interleaved_columns_first"}


def is_packed(shapes: dict[str, tuple[int, ...]]) -> bool:
    """Whether the first layer of the MLPs contains the gate and the values of SwiGLU."""
    first, last = (shapes.get(f"blocks.0.mlp.{name}.weight") for name in ("fc1", "fc2"))
    return first is not None and last is not None and first[0] == 2 * last[1]


def names_for(arch: VisionTransformerArchitecture) -> TensorNames:
    """Returns the row of the class to write a model for."""
    options, is_beit = arch.options, arch.position_embedding == "relative_2d"
    if options.parallel or not is_eva(arch):
        plain = DISTILLED if "dist" in arch.prefix.names else {}
        return PLAIN.replaced("pre_logits=", **(PARALLEL if options.parallel else plain))
    changes = {**EVA, **(BEIT if is_beit else {})}
    gated, normed = options.mlp == "swiglu", options.mlp_norm
    if gated and (normed or is_beit or (options.rope is not None and options.rope.centered)):
        changes |= GATE
    if gated and normed and not is_beit:  # as in EVA-02
        changes |= SEPARATE
    elif options.qkv_bias != "all" or is_beit:
        changes |= QV_BIAS
    return PLAIN.replaced("pre_logits=", **changes)


def is_eva(arch: VisionTransformerArchitecture) -> bool:
    """Whether a model belongs to timm's classes Eva or Beit."""
    options = arch.options
    gated_norm = options.mlp == "swiglu" and options.mlp_norm
    other = options.qkv_bias == "qv" or options.rope is not None or gated_norm
    if arch.classifier == "map":  # with a pool unlike that of class VisionTransformer
        other = other or options.mlp == "swiglu" or options.map_heads is not None
        other = other or options.map_mlp_dim is not None
    return arch.position_embedding == "relative_2d" or other


def rotary_layout(rope: Rope, pre_norm: bool, arguments: dict | None = None) -> str:
    """Returns timm's layout of queries and keys in heads, a name in `tensor_names.LAYOUTS`.

    Args:
        rope: The rotary positions.
        pre_norm: Whether the model normalizes before the blocks, as PE does.
        arguments: The arguments of timm's model; by default, those that this package writes.
    """
    if rope.mixed:
        return "interleaved"
    if arguments is not None:
        half, indexing = arguments["rope_rotate_half"], arguments["rope_grid_indexing"]
    else:
        half = rope.centered
        indexing = "xy" if not half and (pre_norm or rope.reference is None) else "ij"
    if half and indexing == "xy":
        raise ValueError(
            "Columns come first only in heads whose pairs are neighbors. Received: "
            "rope_rotate_half=True, rope_grid_indexing='xy'"
        )
    return "halves" if half else COLUMNS_FIRST[indexing]


BACKBONE = "patch_embed.backbone"


def stem_links(arch: HybridArchitecture) -> list[Link]:
    """Links the ResNet of a hybrid; a root without stages is one level higher."""
    root = f"{BACKBONE}.stem" if arch.resnet_layers else BACKBONE
    layers, result = {"conv_root": f"{root}.conv", "gn_root": f"{root}.norm"}, []
    for path in arch.paths:
        layer, _, leaf = path.rpartition("/")
        if match := re.fullmatch(r"block(\d+)/unit(\d+)/(conv|gn)(\d|_proj)", layer):
            block, unit, kind, number = match.groups()
            kind = {"conv": "conv", "gn": "norm"}[kind]
            part = f"downsample.{kind}" if number == "_proj" else f"{kind}{number}"
            layers[layer] = f"{BACKBONE}.stages.{int(block) - 1}.blocks.{int(unit) - 1}.{part}"
        if layer in layers:
            result.append(in_pytorch(f"{layers[layer]}.{LEAVES[leaf]}", path))
    return result


def stem_sizes(shapes: dict) -> dict:
    """Returns the arguments of `HybridViT` from the shapes of a stem; empty without a stem."""
    units = r"patch_embed\.backbone\.stages\.(\d+)\.blocks\.(\d+)\."
    roots = [f"{BACKBONE}.{name}.weight" for name in ("conv", "stem.conv")]
    held = [root for root in roots if root in shapes]
    return resnet_sizes(shapes, held[0], units, (1, 0)) if held else {}
