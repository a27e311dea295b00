"""The paper's hybrids (Section 3.1): a ResNet whose map a Vision Transformer reads."""

import functools

import keras

from vit_keras.initializers import default_seed
from vit_keras.layers import GroupNorm, ResNetInput, StdConv
from vit_keras.layers.base import pair
from vit_keras.models.common import image_input, layer_options
from vit_keras.models.image_model import ImageModel
from vit_keras.models.resnet import add_stages, root_width
from vit_keras.models.vit import VisionTransformer
from vit_keras.variants import stem_stride


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
    """Builds a ResNet stem and a transformer: images `(B, H, W, C)` in [-1, 1] -> logits.

    `resnet_layers` are the units of the stem's stages, () for the root alone; `resnet_width`
    multiplies its 64 channels; `patch_size` is cells of the stem's map, mostly 1. The other
    arguments are `VisionTransformer`'s. `standardization` is `StdConv`'s and
    `group_norm_epsilon` GroupNorm's: the defaults are the published code's, "timm" and 1e-5 are
    timm's. ValueError: the total stride, 4 pixels for the root, 2 for each stage after the first,
    times the patch, must divide the image.
    """
    width = root_width(resnet_layers, resnet_width)
    seed = default_seed() if seed is None else seed
    part = functools.partial(layer_options, seed, dtype)
    stride = stem_stride(resnet_layers)
    total = tuple(stride * cells for cells in pair(patch_size, "patch_size"))
    unit = {"standardization": standardization, "group_norm_epsilon": group_norm_epsilon}

    x = image_input(image_size, channels) if input_tensor is None else input_tensor
    x = ResNetInput(total, dtype=dtype, name="resnet_input")(x)
    x = _root(x, width, part, dtype, **unit)  # (B, H/4, W/4, 64w)
    x = add_stages(x, resnet_layers, width, {"activation": "post", **unit}, part)
    shared = {"dtype": dtype, "seed": seed, "name": name}
    return VisionTransformer(None, patch_size, input_tensor=x, **shared, **transformer)


def _root(x, width, part, dtype, standardization, group_norm_epsilon):
    root = {"strides": 2, "standardization": standardization}
    x = StdConv(width, 7, **root, **part("conv_root"))(x)
    x = GroupNorm(epsilon=group_norm_epsilon, name="gn_root", dtype=dtype)(x)
    x = keras.layers.ReLU(dtype=dtype, name="relu_root")(x)
    pool = {"padding": "same", "data_format": "channels_last", "dtype": dtype}
    return keras.layers.MaxPooling2D(3, 2, **pool, name="pool_root")(x)
