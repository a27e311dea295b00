"""The Vision Transformer of arXiv 2010.11929 as a functional Keras model."""

import functools

import keras

from vit_keras.initializers import default_seed
from vit_keras.layers import (
    ClassToken,
    EncoderBlock,
    MAPHead,
    PatchDropout,
    PatchEmbedding,
    TakeClassToken,
)
from vit_keras.layers.base import check_choice, check_positive, layer_norm
from vit_keras.layers.positions import IN_ATTENTION
from vit_keras.models.common import add_head, image_input, image_source, layer_options
from vit_keras.models.image_model import ImageModel
from vit_keras.models.position_embeddings import (
    added_positions,
    check_dropped_patches,
    check_positions,
)

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
    position_embedding: str = "learned",
    position_embedding_at: str = "stem",
    dropout_rate: float = 0.0,
    attention_dropout_rate: float = 0.0,
    stochastic_depth_rate: float = 0.0,
    patch_keep_rate: float = 1.0,
    gelu: str = "exact",
    layer_norm_epsilon: float = 1e-6,
    channels: int = 3,
    classifier_activation=None,
    head_bias: float = 0.0,
    rematerialise: bool = False,
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

    `position_embedding` is "learned", "none", "learned_2d" (of columns and rows) or "sincos2d"
    (fixed), added once ("stem"), before every block ("every") or before every block the same
    ("shared"), as `position_embedding_at` says; or, in every block's attention, "relative" (1-D,
    learned for each block) or "rope2d" (Appendix D.4, Table 8).

    `stochastic_depth_rate` is the last block's, growing linearly from 0. `patch_keep_rate` is the
    part of an image's patches that a step of training sees (`PatchDropout`). `head_bias` is what
    the classifier's biases start from. `rematerialise` computes the blocks' activations again in
    the backward pass: less memory for a third more work. An `input_tensor` stands for images, with
    its own size. Equal seeds give equal weights on every backend. Raises ValueError: the patch must
    divide the image, the heads the width.
    """
    check_choice(classifier, CLASSIFIERS, "classifier")
    check_positive(num_layers=num_layers)
    check_positions(position_embedding, position_embedding_at)
    if patch_keep_rate != 1:
        check_dropped_patches(position_embedding, position_embedding_at)
    part = functools.partial(layer_options, default_seed() if seed is None else seed, dtype)
    mlp = {"gelu": gelu, "layer_norm_epsilon": layer_norm_epsilon}
    head = {"num_heads": num_heads, "mlp_dim": mlp_dim, **mlp}
    rates = {"dropout_rate": dropout_rate, "attention_dropout_rate": attention_dropout_rate}
    block = {**head, **rates, "rematerialise": rematerialise}

    x = image_input(image_size, channels) if input_tensor is None else input_tensor
    patches = PatchEmbedding(hidden_size, patch_size, **part("embedding"))
    grid = patches.grid(x.shape[1:3])
    if position_embedding in IN_ATTENTION:
        block |= {"position_embedding": position_embedding, "grid": grid}
    positions = added_positions(position_embedding, position_embedding_at, grid, num_layers, part)
    x = _embed(x, patches, classifier == "token", positions[0], dropout_rate, part)
    if patch_keep_rate != 1:
        class_tokens = int(classifier == "token")
        x = PatchDropout(patch_keep_rate, class_tokens, **part("patch_dropout"))(x)
    x = _encode(x, positions, stochastic_depth_rate, block, part)
    x = _normalise_and_pool(x, classifier, head, part)
    x = add_head(x, num_classes, representation_size, classifier_activation, part, head_bias)
    return ImageModel(image_source(x), x, name=name)


def _embed(x, patches, class_token, positions, dropout_rate, part):
    """Eq. 1: patches, the class token and position embeddings, `(B, N, D)`."""
    x = patches(x)
    if class_token:
        x = ClassToken(dtype=part("cls")["dtype"], name="cls")(x)
    x = x if positions is None else positions(x)
    return keras.layers.Dropout(dropout_rate, **part("posembed_dropout"))(x)


def _encode(x, positions, stochastic_depth_rate, block, part):
    """Eq. 2 and 3, once for each of the blocks' `positions`, of which `_embed` adds the first."""
    for i, add in enumerate(positions):
        x = x if add is None or i == 0 else add(x)
        rate = stochastic_depth_rate * i / max(len(positions) - 1, 1)
        x = EncoderBlock(**block, stochastic_depth_rate=rate, **part(f"encoderblock_{i}"))(x)
    return x


def _normalise_and_pool(x, classifier, head, part):
    """Eq. 4: `encoder_norm`, and one vector `(B, D)` of an image's tokens `(B, N, D)`."""
    dtype = part("encoder_norm")["dtype"]
    norm = layer_norm(head["layer_norm_epsilon"], "encoder_norm", dtype=dtype)
    if classifier == "token":
        return TakeClassToken(dtype=dtype, name="token")(norm(x))
    if classifier == "map":
        return MAPHead(**head, **part("MAPHead_0"))(norm(x))
    pool = keras.layers.GlobalAveragePooling1D(dtype=dtype, name="gap")
    return pool(norm(x)) if classifier == "gap" else norm(pool(x))
