"""Rules for individual layers: their learning rates, and which layers do not train."""

import re

import keras

from vit_keras.models.common import matching_layers

BLOCK = re.compile(r"encoderblock_(\d+)")
FIRST = re.compile(
    r"embedding|cls|dist|(detection_)?registers|posembed_input|pre_norm|conv_root|gn_root|block\d+"
)


def rate_multiplier(path: str, layer_decay: float, num_layers: int) -> float:
    """Returns the learning-rate factor of the variable at `path` (as in BEiT and MAE).

    The factor is `layer_decay` to the power of `num_layers` + 1 - depth. The embeddings, a
    normalization after them and a ResNet stem have depth 0, and `encoderblock_{i}` has depth i + 1.
    All later layers have depth `num_layers` + 1, so their factor is 1.
    """
    layer = path.split("/")[0]
    if block := BLOCK.fullmatch(layer):
        depth = int(block[1]) + 1
    else:
        depth = 0 if FIRST.fullmatch(layer) else num_layers + 1
    return layer_decay ** (num_layers + 1 - depth)


def num_blocks(model: keras.Model) -> int:
    """Counts the transformer blocks of `model`.

    Raises:
        ValueError: If there are none.
    """
    count = sum(BLOCK.fullmatch(layer.name) is not None for layer in model.layers)
    if not count:
        raise ValueError(
            "`layer_decay` needs a model with layers encoderblock_{i}. "
            f"Received: model {model.name!r}, which has none"
        )
    return count


def freeze(model: keras.Model, patterns) -> None:
    """Freezes the layers whose names match a pattern. Call it before `compile`.

    Dropout stays active in frozen layers.

    Args:
        model: The model whose layers to freeze.
        patterns: Names of layers. `*`, `?` and `[!h]` work as in `fnmatch`.

    Raises:
        ValueError: If a pattern matches no layer with weights, or if no layer is left to train.

    Example:
        freeze(model, ["embedding", "encoderblock_*"])  # positions, the last norm and head train
        freeze(model, ["[!h]*"])  # all names that do not begin with h: a linear probe
    """
    for layer in matching_layers(model, patterns, "freeze"):
        layer.trainable = False
    if not model.trainable_variables:
        names = ", ".join(layer.name for layer in model.layers if layer.weights)
        raise ValueError(
            "`freeze` must leave at least one layer that trains, such as the head. "
            f"Received: {list(patterns)}, which match all of {names}"
        )
