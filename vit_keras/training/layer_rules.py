"""What differs from layer to layer: its learning rate, and whether it trains at all."""

import difflib
import fnmatch
import re

import keras

BLOCK = re.compile(r"encoderblock_(\d+)")
FIRST = re.compile(r"embedding|cls|posembed_input|conv_root|gn_root|block\d+")


def rate_multiplier(path: str, layer_decay: float, num_layers: int) -> float:
    """`layer_decay` to the power of the layers above the variable called `path` (BEiT, MAE).

    The embeddings and a ResNet stem have depth 0, `encoderblock_{i}` i + 1, all that follows
    `num_layers` + 1, which gives 1.
    """
    layer = path.split("/")[0]
    if block := BLOCK.fullmatch(layer):
        depth = int(block[1]) + 1
    else:
        depth = 0 if FIRST.fullmatch(layer) else num_layers + 1
    return layer_decay ** (num_layers + 1 - depth)


def num_blocks(model: keras.Model) -> int:
    """How many transformer blocks `model` has; ValueError for none."""
    found = sum(BLOCK.fullmatch(layer.name) is not None for layer in model.layers)
    if not found:
        raise ValueError(
            "`layer_decay` goes from one encoderblock_{i} to the next. "
            f"Received: model {model.name!r} without any"
        )
    return found


def freeze(model: keras.Model, patterns) -> None:
    """Stops the training of the layers whose names match a pattern with `*`, `?` or `[!h]`.

    `["embedding", "encoderblock_*"]` leaves the norm, the positions and the head; `["[!h]*"]`, all
    that does not begin with h, leaves the head alone: a linear probe. Dropout goes on in frozen
    layers. To be called before `compile`. Raises ValueError for a pattern that matches no layer
    with weights, and where nothing is left that trains.
    """
    layers = {layer.name: layer for layer in model.layers if layer.weights}
    for pattern in patterns:
        names = fnmatch.filter(layers, pattern)
        if not names:
            near = difflib.get_close_matches(pattern, layers, n=3, cutoff=0.3) or list(layers)
            raise ValueError(
                f"`freeze` must match names of layers with weights. Received: {pattern!r}, which "
                f"matches none. Near: {', '.join(near)}"
            )
        for name in names:
            layers[name].trainable = False
    if not model.trainable_variables:
        raise ValueError(
            "`freeze` must leave a layer that trains, such as the head. "
            f"Received: {list(patterns)}, which match all of {', '.join(layers)}"
        )
