"""Constructors that take the name of a variant or the configuration of a run."""

from vit_keras import variants
from vit_keras.layers.common import OPTION_NAMES
from vit_keras.models.architectures import class_for
from vit_keras.models.image_model import ImageModel
from vit_keras.models.resnet import HybridViT, ResNet
from vit_keras.models.vit import VisionTransformer
from vit_keras.support.checks import check_choice
from vit_keras.support.preprocessing import Preprocessing, Resizing
from vit_keras.variants import families

CONSTRUCTORS = {f.__name__: f for f in (VisionTransformer, HybridViT, ResNet)}


def from_variant(variant: str, /, **arguments) -> ImageModel:
    """Builds the model of a named variant.

    Args:
        variant: A row of `vit_keras.variants`, such as "B/16", "R50+L/32", "R50x1" or
            "DINOv2-S/14". Case matters: "b/32" is half as wide as "B/32".
        **arguments: Arguments of the constructor: `VisionTransformer`, `HybridViT` for names with a
            plus, `ResNet` for names with an x. They override the variant's.

    Returns:
        An `ImageModel` with initial weights. A family's variant has its publisher's preprocessing
        and resizing rules. It takes images of the published size unless `image_size` is given.

    Raises:
        ValueError: If the name is unknown (the message suggests the nearest ones), or if an
            argument is invalid.

    Example:
        >>> from_variant("R50+B/16", image_size=224, num_classes=10).count_params()
        97897802
        >>> from_variant("DINOv2-S/14", image_size=224).preprocessing.mean
        (0.485, 0.456, 0.406)
    """
    row = variants.get(variant)
    arguments = variants.architecture(variant, **arguments)
    model = CONSTRUCTORS[class_for(arguments).constructor](**arguments)
    if isinstance(row, variants.FamilyVariant):
        family = families.family_of(row)
        model.preprocessing = Preprocessing(**family.preprocessing)
        model.resizing = Resizing(family.resizing)
    return model


def from_model_config(config, **arguments) -> ImageModel:
    """Builds the model that a run's configuration describes.

    Args:
        config: A `vit_keras.config.ModelConfig`.
        **arguments: Arguments of the constructor, such as `num_classes`. They override the
            configuration's.

    Returns:
        An `ImageModel` with initial weights.

    Raises:
        ValueError: If the configuration sets an argument that the variant does not have, or if
            `config.options` has a key that is not a field of `ViTOptions`.

    Example:
        >>> from_model_config(ModelConfig("B/16", image_size=384), num_classes=10)
    """
    for name in config.options or ():
        check_choice(name, OPTION_NAMES, "model.options")
    arguments = {**config.arguments(), **arguments}
    if config.variant is None:
        return VisionTransformer(**arguments)
    return from_variant(config.variant, **arguments)
