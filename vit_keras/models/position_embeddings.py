"""Where a model's tokens get their places: the kinds and placements of Appendix D.4."""

import keras

from vit_keras.layers import (
    AddPositionEmbs,
    AddPositionEmbs2D,
    AddSinCosPositions,
    EncoderBlock,
)
from vit_keras.layers.base import check_choice
from vit_keras.layers.positions import ADDED, IN_ATTENTION

POSITION_EMBEDDINGS = ("none", *ADDED, *IN_ATTENTION)
# By placement: the names of the layers that add to the inputs of the blocks.
NAMES = {"stem": "posembed_input", "every": "posembed_{}", "shared": "posembed_shared"}
KINDS = {
    AddPositionEmbs: "learned",
    AddPositionEmbs2D: "learned_2d",
    AddSinCosPositions: "sincos2d",
}


def check_positions(kind: str, place: str) -> None:
    """ValueError for an unknown kind or placement, or where what is not added is placed."""
    check_choice(kind, POSITION_EMBEDDINGS, "position_embedding")
    check_choice(place, NAMES, "position_embedding_at")
    if kind not in ADDED and place != "stem":
        raise ValueError(
            f"`position_embedding_at` places what is added to the tokens, one of "
            f"{', '.join(map(repr, ADDED))}; 'relative' and 'rope2d' act in the attention of every "
            "block; leave it at 'stem'. "
            f"Received: position_embedding={kind!r}, position_embedding_at={place!r}"
        )


def check_dropped_patches(kind: str, place: str) -> None:
    """ValueError where patches that are left out would take the places of others."""
    if kind in IN_ATTENTION or place != "stem":
        raise ValueError(
            "`patch_keep_rate` below 1 leaves tokens out after the position embeddings, so these "
            "must be added once, before the blocks. "
            f"Received: position_embedding={kind!r}, position_embedding_at={place!r}"
        )


def added_positions(kind, place, grid, num_layers, part) -> list:
    """What is applied to the tokens `(B, N, D)` before each block; None for nothing."""
    if kind not in ADDED:
        return [None] * num_layers
    numbers = range(num_layers if place == "every" else 1)
    layers = [ADDED[kind](grid=grid, **part(NAMES[place].format(i))) for i in numbers]
    if place == "shared":
        return layers * num_layers
    return layers + [None] * (num_layers - len(layers))


def positions_of(model: keras.Model) -> tuple[str, str]:
    """The `position_embedding` and `position_embedding_at` of a built model."""
    for layer in model.layers:
        if isinstance(layer, EncoderBlock) and layer.position_embedding is not None:
            return layer.position_embedding, "stem"
    added = [layer for layer in model.layers if type(layer) in KINDS]
    if not added:
        return "none", "stem"
    places = {name.format(0): place for place, name in NAMES.items()}
    return KINDS[type(added[0])], places.get(added[0].name, "stem")
