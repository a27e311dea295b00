"""Finds the arguments of `VisionTransformer` that built a model, from its layers.

The layers come from a built model or from the configuration in a `.keras` file. In both cases they
are `LayerFacts` in the order of computation.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras

from vit_keras.models.options import READ_CLASS_TOKEN, ViTOptions


class LayerFacts(NamedTuple):
    """A layer's name, the name of its class, and its arguments."""

    name: str
    kind: str
    config: dict[str, Any]


def facts_of(model: keras.Model) -> list[LayerFacts]:
    """Returns the facts of a built model's layers, in the order of computation."""
    return [LayerFacts(x.name, type(x).__name__, x.get_config()) for x in model.layers]


def classifier_of(layers: Sequence[LayerFacts]) -> str:
    """Returns the argument `classifier` of the model with these layers."""
    names = [layer.name for layer in layers]
    if any(layer.kind == "MAPHead" for layer in layers):
        return "map"
    for name, classifier in (("dist_token", "distilled"), ("token_gap", "token_gap")):
        if name in names:
            return classifier
    if any(layer.kind == "TakeClassToken" for layer in layers):
        return "token"
    if "gap" not in names and "cls" in names:
        return "token"
    pooled_first = {"gap", "encoder_norm"} <= {*names} and (
        names.index("gap") < names.index("encoder_norm")
    )
    return "gap_norm" if pooled_first else "gap"


def options_of(layers: Sequence[LayerFacts]) -> ViTOptions:
    """Returns the `ViTOptions` of the model with these layers."""
    by_name = {layer.name: layer for layer in layers}
    by_kind = {layer.kind: layer.config for layer in reversed(layers)}
    classifier, (block, global_blocks) = classifier_of(layers), _blocks(layers)
    embedding, pool = by_kind.get("PatchEmbedding", {}), by_kind.get("MAPHead")
    registers = by_kind.get("RegisterTokens", {}).get("num_registers", 0)
    has_prefix = registers or "cls" in by_name or "dist" in by_name
    return ViTOptions(
        **(block.get("options") or {}),
        global_blocks=global_blocks,
        class_token="cls" in by_name and classifier not in READ_CLASS_TOKEN,
        distillation_token="dist" in by_name and classifier != "distilled",
        num_registers=registers,
        position_cover=_position_cover([layer.name for layer in layers]),
        crop_to_patches=embedding.get("crop", False),
        pre_norm="pre_norm" in by_name,
        final_norm="encoder_norm" in by_name,
        pool_all_tokens=bool(pool and has_prefix and "patch_tokens" not in by_name),
        map_heads=_other("num_heads", pool, block),
        map_mlp_dim=_other("mlp_dim", pool, block),
        boxes=_boxes(by_name),
        head_use_bias="head" not in by_name or by_name["head"].config.get("use_bias", True),
    )


def _blocks(layers):
    """The arguments of a block, one with windows if any, and of the blocks without windows."""
    blocks = [layer.config for layer in layers if layer.kind == "EncoderBlock"] or [{}]
    windowed = [(block.get("options") or {}).get("window_size") is not None for block in blocks]
    if not any(windowed):
        return blocks[0], ()
    return blocks[windowed.index(True)], tuple(i for i, is_in in enumerate(windowed) if not is_in)


def _boxes(names):
    """What finds objects, from the names of the layers."""
    if "head_boxes" not in names:
        return None
    if "head_scale" in names:
        return "texts_objectness" if "head_objectness" in names else "texts"
    return "tokens" if "detection_tokens" in names else "patches"


def _other(size, pool, block):
    """A size of the attention pool, or None if it equals the blocks'."""
    value = None if pool is None else pool[size]
    return None if value == block.get(size) else value


def _position_cover(names):
    """The tokens that positions cover; "all" if no tokens follow the positions."""
    place = names.index("posembed_input") if "posembed_input" in names else len(names)
    later = [name for name in ("cls", "dist", "registers") if name in names[place:]]
    if not later:
        return "all"
    return "class" if later == ["registers"] and "cls" in names else "patches"
