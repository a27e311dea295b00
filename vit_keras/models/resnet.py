"""BiT's ResNet-v2 (arXiv 1912.11370), and hybrids that read its feature map (Section 3.1)."""

from typing import Any

import keras

from vit_keras import layers
from vit_keras.layers import common
from vit_keras.layers.base import LayerArguments
from vit_keras.models import architectures
from vit_keras.models.common import add_head, image_input, image_source
from vit_keras.models.image_model import ImageModel
from vit_keras.models.vit import VisionTransformer
from vit_keras.variants import ROOT_WIDTH, stem_stride


def ResNet(
    image_size: int | tuple[int, int] | None,
    resnet_layers: tuple[int, ...],
    resnet_width: float,
    num_classes: int | None,
    channels: int = 3,
    classifier_activation=None,
    head_bias: float = 0.0,
    input_tensor=None,
    dtype=None,
    seed: int | None = None,
    name: str = "resnet",
) -> ImageModel:
    """Builds BiT's ResNet-v2 (arXiv 1912.11370), the paper's baseline.

    The model maps images `(B, H, W, C)` in [-1, 1] to logits `(B, num_classes)`.

    Args:
        image_size: Pixels, an int or (height, width), or None for images of any size.
        resnet_layers: The number of units in each stage: (3, 4, 6, 3) for R50.
        resnet_width: The factor of all widths, starting with the root's 64 channels: 0.5, 1, 2 and
            so on. Widths must be multiples of 32, the number of groups in `GroupNorm`.
        num_classes: The number of classes. None or 0 gives features, `(B, 2048 · resnet_width)`
            with four stages.
        channels: The number of channels of the images.
        classifier_activation: The activation of `head`; None gives logits.
        head_bias: The initial value of the biases of `head`, whose kernel starts at zero.
        input_tensor: A Keras tensor to use as the images; it sets the image size.
        dtype: The dtype policy of all layers.
        seed: Equal seeds give equal weights on every backend.
        name: The name of the model.

    Returns:
        An `ImageModel` with the layers `root_block`, `block1` and so on, `norm-pre-head`, `relu`,
        `avg_pool` and `head`.

    Raises:
        ValueError: If an argument is invalid.
        TypeError: If an argument is unknown.

    Example:
        >>> ResNet(224, (3, 4, 6, 3), 1, num_classes=1000)  # R50x1
    """
    width = int(ROOT_WIDTH * resnet_width)
    layer = LayerArguments(seed, dtype)
    x = image_input(image_size, channels, input_tensor)
    sizes: dict[str, Any] = {"image_size": tuple(x.shape[1:3]), "channels": x.shape[-1]}

    x = layers.RootBlock(width, **layer("root_block"))(x)  # (B, H/4, W/4, 64w)
    unit = {"activation": "pre", "standardization": "bit", "group_norm_epsilon": 1e-5}
    x = add_stages(x, resnet_layers, width, unit, layer)  # (B, H/32, W/32, 2048w)
    x = layers.GroupNorm(epsilon=1e-5, name="norm-pre-head", dtype=dtype)(x)
    x = keras.layers.ReLU(dtype=dtype, name="relu")(x)
    x = keras.layers.GlobalAveragePooling2D("channels_last", **layer.unseeded("avg_pool"))(x)
    x = add_head(x, num_classes, None, classifier_activation, layer, head_bias)
    model = ImageModel(image_source(x), x, name=name)
    sizes |= {"resnet_layers": tuple(resnet_layers), "resnet_width": width / ROOT_WIDTH}
    model.architecture = architectures.ResNetArchitecture(**sizes, num_classes=num_classes or None)
    return model


def add_stages(x, resnet_layers, width, unit, layer):
    """Adds the stages `block1`, `block2` and so on.

    Each stage after the first halves the sides of the map and doubles the width.
    """
    for i, num_units in enumerate(resnet_layers):
        strides = 1 if i == 0 else 2
        x = layers.ResNetStage(num_units, width * 2**i, strides, **unit, **layer(f"block{i + 1}"))(
            x
        )
    return x


def HybridViT(
    image_size: int | tuple[int, int] | None,
    resnet_layers: tuple[int, ...],
    resnet_width: float,
    patch_size: int | tuple[int, int],
    *,
    standardization: str = "vit",
    group_norm_epsilon: float = 1e-6,
    channels: int = 3,
    input_tensor=None,
    dtype=None,
    seed: int | None = None,
    name: str = "hybrid_vit",
    **transformer,
) -> ImageModel:
    """Builds a ResNet stem and a Vision Transformer that reads its feature map (Section 3.1).

    The model maps images `(B, H, W, C)` in [-1, 1] to logits `(B, num_classes)`.

    Args:
        image_size: Pixels, an int or (height, width). The total stride must divide it: 4 pixels for
            the root, times 2 for each stage after the first, times the patch size.
        resnet_layers: The number of units in each stage of the stem; () for the root alone.
        resnet_width: The factor of all widths, starting with the root's 64 channels: 0.5, 1, 2 and
            so on. Widths must be multiples of 32, the number of groups in `GroupNorm`.
        patch_size: Cells of the stem's feature map, an int or (height, width); 1 in most variants.
        standardization: How `StdConv` standardizes its filters: "vit" as in the published code,
            "timm" as in timm.
        group_norm_epsilon: The number that `GroupNorm` adds to the variance: 1e-6 in the published
            code, 1e-5 in timm.
        channels: The number of channels of the images.
        input_tensor: A Keras tensor to use as the images; it sets the image size.
        dtype: The dtype policy of all layers.
        seed: Equal seeds give equal weights on every backend.
        name: The name of the model.
        **transformer: The other arguments of `VisionTransformer`, such as `hidden_size`.

    Returns:
        An `ImageModel`. The layers of the stem are `conv_root`, `gn_root`, `block1` and so on.

    Raises:
        ValueError: If the total stride does not divide `image_size`, or an argument is invalid.
        TypeError: If an argument is unknown.

    Example:
        >>> HybridViT(
        ...     224, (3, 4, 9), 1, 1, hidden_size=768, num_layers=12, num_heads=12, mlp_dim=3072,
        ...     num_classes=1000,
        ... )  # R50+ViT-B/16
    """
    width = int(ROOT_WIDTH * resnet_width)
    layer = LayerArguments(seed, dtype)
    stride = stem_stride(resnet_layers)
    rows, columns = common.pair(patch_size, "patch_size")
    unit = {"standardization": standardization, "group_norm_epsilon": group_norm_epsilon}

    x = image_input(image_size, channels, input_tensor)
    sizes: dict[str, Any] = {"image_size": tuple(x.shape[1:3]), "channels": x.shape[-1]}
    x = layers.ResNetInput((stride * rows, stride * columns), dtype=dtype, name="resnet_input")(x)
    x = layers.StdConv(width, 7, 2, standardization=standardization, **layer("conv_root"))(x)
    x = layers.GroupNorm(epsilon=group_norm_epsilon, name="gn_root", dtype=dtype)(x)
    x = keras.layers.ReLU(dtype=dtype, name="relu_root")(x)
    pool = keras.layers.MaxPooling2D(3, 2, "same", "channels_last", **layer.unseeded("pool_root"))
    x = pool(x)  # (B, H/4, W/4, 64w)
    x = add_stages(x, resnet_layers, width, {"activation": "post", **unit}, layer)
    shared = {"dtype": dtype, "seed": layer.seed, "name": name}
    model = VisionTransformer(None, patch_size, input_tensor=x, **shared, **transformer)
    sizes |= {"resnet_layers": tuple(resnet_layers), "resnet_width": width / ROOT_WIDTH, **unit}
    model.architecture = architectures.HybridArchitecture(**vars(model.architecture) | sizes)
    return model
