"""The Vision Transformer of arXiv 2010.11929 as a functional Keras model."""

import functools

import keras

from vit_keras.initializers import default_seed
from vit_keras.layers import (
    AddPositionEmbs,
    ClassToken,
    EncoderBlock,
    MAPHead,
    PatchEmbedding,
    TakeClassToken,
)
from vit_keras.layers.base import check_choice, check_positive, layer_norm
from vit_keras.models.image_model import ImageModel
from vit_keras.models.parts import add_head, image_input, image_source, layer_part

CLASSIFIERS = ("token", "gap", "map", "gap_norm")


def VisionTransformer(
    image_size: int | tuple[int, int] | None,
    patch_size: int | tuple[int, int],
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    mlp_dim: int,
    num_classes: int | None,
    classifier: str = "token",
    representation_size: int | None = None,
    dropout_rate: float = 0.0,
    attention_dropout_rate: float = 0.0,
    stochastic_depth_rate: float = 0.0,
    gelu: str = "exact",
    layer_norm_epsilon: float = 1e-6,
    channels: int = 3,
    classifier_activation=None,
    input_tensor=None,
    dtype=None,
    seed: int | None = None,
    name: str = "vision_transformer",
) -> ImageModel:
    """Builds Eq. 1–4: images `(B, H, W, C)` in [-1, 1] -> logits `(B, num_classes)`.

    `image_size` and `patch_size` are pixels, an int or (height, width). `classifier` reads the
    class token ("token"), the mean of the tokens ("gap"; "gap_norm" takes it before `encoder_norm`,
    as timm does) or an attention pool ("map"). `num_classes=None` gives features `(B, D)`, which
    `representation_size` passes through the pre-training head, `pre_logits` with tanh.
    `stochastic_depth_rate` is the last block's, growing linearly from 0. An `input_tensor` stands
    for images, with its own size. Equal seeds give equal weights on every backend. Raises
    ValueError: the patch must divide the image, the heads the width.
    """
    check_choice(classifier, CLASSIFIERS, "classifier")
    part = functools.partial(layer_part, default_seed() if seed is None else seed, dtype)
    mlp = {"gelu": gelu, "layer_norm_epsilon": layer_norm_epsilon}
    block = {"num_heads": num_heads, "mlp_dim": mlp_dim, **mlp}
    rates = {"dropout_rate": dropout_rate, "attention_dropout_rate": attention_dropout_rate}

    x = image_input(image_size, channels) if input_tensor is None else input_tensor
    x = _embed(x, patch_size, hidden_size, classifier == "token", dropout_rate, part)
    x = _encode(x, num_layers, stochastic_depth_rate, {**block, **rates}, part)
    x = _normalise_and_pool(x, classifier, block, part)
    x = add_head(x, num_classes, representation_size, classifier_activation, part)
    return ImageModel(image_source(x), x, name=name)


def _embed(x, patch_size, hidden_size, class_token, dropout_rate, part):
    """Eq. 1: patches, the class token and position embeddings, `(B, N, D)`."""
    x = PatchEmbedding(hidden_size, patch_size, **part("embedding"))(x)
    if class_token:
        x = ClassToken(dtype=part("cls")["dtype"], name="cls")(x)
    x = AddPositionEmbs(**part("posembed_input"))(x)
    return keras.layers.Dropout(dropout_rate, **part("posembed_dropout"))(x)


def _encode(x, num_layers, stochastic_depth_rate, block, part):
    """Eq. 2 and 3, `num_layers` times."""
    check_positive(num_layers=num_layers)
    for i in range(num_layers):
        rate = stochastic_depth_rate * i / max(num_layers - 1, 1)
        x = EncoderBlock(**block, stochastic_depth_rate=rate, **part(f"encoderblock_{i}"))(x)
    return x


def _normalise_and_pool(x, classifier, block, part):
    """Eq. 4: `encoder_norm`, and one vector `(B, D)` of an image's tokens `(B, N, D)`."""
    dtype = part("encoder_norm")["dtype"]
    norm = layer_norm(block["layer_norm_epsilon"], "encoder_norm", dtype=dtype)
    if classifier == "token":
        return TakeClassToken(dtype=dtype, name="token")(norm(x))
    if classifier == "map":
        return MAPHead(**block, **part("MAPHead_0"))(norm(x))
    pool = keras.layers.GlobalAveragePooling1D(dtype=dtype, name="gap")
    return pool(norm(x)) if classifier == "gap" else norm(pool(x))
