"""The kinds of position embeddings and their placements in a model (Appendix D.4)."""

import keras

from vit_keras.layers import (
    AddPositionEmbs,
    AddPositionEmbs2D,
    AddSinCosPositions,
    EncoderBlock,
)
from vit_keras.layers.base import BlockOptions, check_choice
from vit_keras.layers.positions import ADDED
from vit_keras.layers.positions_in_attention import IN_ATTENTION

POSITION_EMBEDDINGS = ("none", *ADDED, *IN_ATTENTION)
# The names of the layers that add to the inputs of the blocks, by placement.
NAMES = {"stem": "posembed_input", "every": "posembed_{}", "shared": "posembed_shared"}
KINDS = {
    AddPositionEmbs: "learned",
    AddPositionEmbs2D: "learned_2d",
    AddSinCosPositions: "sincos2d",
}


def check_positions(kind: str, place: str) -> None:
    """Raises ValueError for an unknown kind or placement, or for an incompatible pair."""
    check_choice(kind, POSITION_EMBEDDINGS, "position_embedding")
    check_choice(place, NAMES, "position_embedding_at")
    if (kind not in ADDED or kind == "learned_relative_2d") and place != "stem":
        raise ValueError(
            "`position_embedding_at` must be 'stem' unless position embeddings are added to the "
            f"tokens, as {', '.join(map(repr, ADDED))} are; the others act in the attention "
            "of every block. "
            f"Received: position_embedding={kind!r}, position_embedding_at={place!r}"
        )


def check_dropped_patches(kind: str, place: str, options: BlockOptions) -> None:
    """Raises ValueError if dropping patches would shift positions or break windows."""
    rope, window_size, boxes = options.rope, options.window_size, getattr(options, "boxes", None)
    if boxes not in (None, "tokens"):
        raise ValueError(
            "`patch_keep_rate` below 1 drops patches, whose boxes have places, so `boxes` must be "
            f"None or 'tokens'. Received: boxes={boxes!r}"
        )
    if window_size is not None:
        raise ValueError(
            "`patch_keep_rate` below 1 drops patches from the windows, so `window_size` must be "
            f"None. Received: window_size={window_size}"
        )
    if kind.removeprefix("learned_") in IN_ATTENTION or rope is not None or place != "stem":
        raise ValueError(
            "`patch_keep_rate` below 1 drops tokens after the position embeddings, which must "
            "therefore be added once, before the blocks. "
            f"Received: position_embedding={kind!r}, position_embedding_at={place!r}, rope={rope}"
        )


def added_positions(kind, place, grid, num_layers, layer) -> list:
    """Returns, for each block, the layer that adds to its input `(B, N, D)`, or None."""
    if kind not in ADDED:
        return [None] * num_layers
    numbers = range(num_layers if place == "every" else 1)
    layers = [ADDED[kind](grid=grid, **layer(NAMES[place].format(i))) for i in numbers]
    if place == "shared":
        return layers * num_layers
    return layers + [None] * (num_layers - len(layers))


def positions_of(model: keras.Model) -> tuple[str, str]:
    """Returns the kind and the placement of a model's position embeddings.

    Args:
        model: A `VisionTransformer` or a hybrid, built or loaded from a file.

    Returns:
        The arguments `position_embedding` and `position_embedding_at` that build such a model.

    Example:
        >>> positions_of(from_variant("B/16", image_size=224, num_classes=10))
        ('learned', 'stem')
    """
    added = [layer for layer in model.layers if type(layer) in KINDS]
    for layer in model.layers:
        if isinstance(layer, EncoderBlock) and layer.position_embedding is not None:
            return f"{'learned_' if added else ''}{layer.position_embedding}", "stem"
    if not added:
        return "none", "stem"
    places = {name.format(0): place for place, name in NAMES.items()}
    return KINDS[type(added[0])], places.get(added[0].name, "stem")
