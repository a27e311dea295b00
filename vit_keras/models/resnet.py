"""BiT, the ResNet-v2 baseline of the paper (arXiv 1912.11370), as a functional Keras model."""

import functools

import keras

from vit_keras.initializers import default_seed
from vit_keras.layers import GroupNorm, ResNetStage, RootBlock
from vit_keras.layers.group_norm import GROUPS
from vit_keras.models.common import add_head, image_input, image_source, layer_options
from vit_keras.models.image_model import ImageModel

WIDTH = 64  # of the root of a ResNet of width 1


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
    """Builds BiT's ResNet: images `(B, H, W, C)` in [-1, 1] -> logits `(B, num_classes)`.

    `resnet_layers` are the units of each stage, (3, 4, 6, 3) for R50; `resnet_width` multiplies
    the 64 channels of the root and all that follow. The layers are `root_block`, `block1` …,
    `norm-pre-head`, `relu`, `avg_pool` and `head`, which starts at zero but for its biases,
    `head_bias`. `image_size` is pixels, an int or (height, width), or None for images of any size.
    `num_classes=None` gives features. An `input_tensor` stands for images, with its own size.
    Equal seeds give equal weights on every backend.
    """
    width = root_width(resnet_layers, resnet_width)
    part = functools.partial(layer_options, default_seed() if seed is None else seed, dtype)
    x = input_tensor
    if x is None and image_size is None:
        x = keras.Input((None, None, channels), name="images")
    elif x is None:
        x = image_input(image_size, channels)
    images = image_source(x)

    x = RootBlock(width, **part("root_block"))(x)  # (B, H/4, W/4, 64w)
    unit = {"activation": "pre", "standardization": "bit", "group_norm_epsilon": 1e-5}
    x = add_stages(x, resnet_layers, width, unit, part)  # (B, H/32, W/32, 2048w)
    x = GroupNorm(epsilon=1e-5, name="norm-pre-head", dtype=dtype)(x)
    x = keras.layers.ReLU(dtype=dtype, name="relu")(x)
    pool = {"data_format": "channels_last", "dtype": dtype, "name": "avg_pool"}
    x = keras.layers.GlobalAveragePooling2D(**pool)(x)
    x = add_head(x, num_classes, None, classifier_activation, part, head_bias)
    return ImageModel(images, x, name=name)


def root_width(resnet_layers, resnet_width) -> int:
    """Channels of the root; ValueError unless the stages' units and the width make a ResNet."""
    layers = resnet_layers
    if not isinstance(layers, (tuple, list)) or not all(type(n) is int and n > 0 for n in layers):
        raise ValueError(
            "`resnet_layers` must be a tuple of positive ints, the units of each stage. "
            f"Received: resnet_layers={layers!r}"
        )
    width = WIDTH * resnet_width if isinstance(resnet_width, (int, float)) else 0
    if width < GROUPS or width % GROUPS:
        raise ValueError(
            f"`resnet_width` must make {WIDTH} · resnet_width a multiple of the {GROUPS} groups "
            f"of GroupNorm, such as 0.5, 1 or 2. Received: resnet_width={resnet_width!r}"
        )
    return int(width)


def add_stages(x, resnet_layers, width, unit, part):
    """The stages `block1` …: each halves the map and doubles the width, but for the first."""
    for i, num_units in enumerate(resnet_layers):
        strides = 1 if i == 0 else 2
        shared = part(f"block{i + 1}")
        x = ResNetStage(num_units, width * 2**i, strides, **unit, **shared)(x)
    return x
