"""The model that a variant's name stands for."""

from vit_keras import variants
from vit_keras.models.hybrid import HybridViT
from vit_keras.models.image_model import ImageModel
from vit_keras.models.resnet import ResNet
from vit_keras.models.vit import VisionTransformer

CONSTRUCTORS = {
    variants.Variant: VisionTransformer,
    variants.HybridVariant: HybridViT,
    variants.ResNetVariant: ResNet,
}


def from_variant(variant: str, /, **arguments) -> ImageModel:
    """`from_variant("R50+B/16", image_size=224, num_classes=10)`: the model with its dimensions.

    `arguments` are those of the constructor, `VisionTransformer`, `HybridViT` or `ResNet`, and go
    before the variant's. Raises ValueError with the nearest names for an unknown `variant`.
    """
    constructor = CONSTRUCTORS[type(variants.get(variant))]
    return constructor(**variants.architecture(variant, **arguments))


def from_model_config(config, **arguments) -> ImageModel:
    """The model of a run's `ModelConfig`; `arguments` go before what it says."""
    arguments = {**config.arguments(), **arguments}
    if config.variant is None:
        return VisionTransformer(**arguments)
    return from_variant(config.variant, **arguments)
