"""The sizes that decide the names and shapes of a model's variables."""

from vit_keras.weights.architectures.inference import (
    check_plausible,
    class_for,
    count_blocks,
    count_units,
    guess_image_size,
    square_side,
)
from vit_keras.weights.architectures.recognition import family_name, variant_name
from vit_keras.weights.architectures.resnet import ResNetArchitecture
from vit_keras.weights.architectures.vision_transformer import (
    HybridArchitecture,
    VisionTransformerArchitecture,
)

__all__ = [
    "HybridArchitecture",
    "ResNetArchitecture",
    "VisionTransformerArchitecture",
    "check_plausible",
    "class_for",
    "count_blocks",
    "count_units",
    "family_name",
    "guess_image_size",
    "square_side",
    "variant_name",
]
