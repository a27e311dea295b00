"""Text towers, and pairs of an image and a text tower that were trained together."""

import dataclasses
import functools
import math
from typing import Any

import keras
from keras import ops

from vit_keras.layers import EncoderBlock, TakeToken, TextEmbedding, TextMask
from vit_keras.layers.base import NORMALIZATIONS, check_positive
from vit_keras.layers.block_options import BlockOptions
from vit_keras.layers.initializers import default_seed, lecun_normal
from vit_keras.models.common import layer_options, names_arguments
from vit_keras.models.description import copy_description
from vit_keras.models.image_model import ImageModel


@names_arguments(also=BlockOptions)
def TextTransformer(
    vocab_size: int,
    context_length: int,
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    mlp_dim: int,
    projection_dim: int | None = None,
    projection_use_bias: bool = False,
    causal: bool = True,
    pooling: str = "largest",
    end_id: int | None = None,
    attention_mask: bool = False,
    gelu: str = "exact",
    layer_norm_epsilon: float = 1e-5,
    dtype=None,
    seed: int | None = None,
    name: str = "text_transformer",
    **options,
) -> keras.Model:
    """Builds the text tower of a CLIP (arXiv 2103.00020) or a SigLIP (arXiv 2303.15343).

    The model maps the ids of texts `(B, N)` to embeddings of length 1, `(B, projection_dim)`.

    Args:
        vocab_size: The number of tokens in the vocabulary.
        context_length: The largest N.
        hidden_size: D, the width of the tokens.
        num_layers: The number of blocks.
        num_heads: The number of attention heads. It must divide `hidden_size`.
        mlp_dim: The width of the hidden layer of each MLP.
        projection_dim: The size of the embeddings; None for no projection, and D numbers.
        projection_use_bias: Whether the projection has a bias, as in SigLIP.
        causal: Whether tokens attend only to themselves and those before them, as in CLIP.
        pooling: The token that becomes the embedding, as in `TakeToken`.
        end_id: The id of the end token, for pooling="end".
        attention_mask: Whether the model takes a second input, a mask `(B, N)` that is 0 for tokens
            to ignore: `model([input_ids, attention_mask])`.
        gelu: As in `VisionTransformer`.
        layer_norm_epsilon: The number that layer normalization adds to the variance.
        dtype: The dtype policy of all layers.
        seed: As in `VisionTransformer`.
        name: The name of the model.
        **options: The fields of `BlockOptions`, in which some of OpenCLIP's blocks differ.

    Returns:
        A `keras.Model`. Its layers are `text_embedding`, `encoderblock_{i}`, `encoder_norm`,
        `pooled`, `projection` and `unit_length`.

    Raises:
        ValueError: If an argument has an unsupported value.
        TypeError: If an argument is unknown; the message names the right one.

    Example:
        >>> text = TextTransformer(49408, 77, 512, 12, 8, 2048, 512, gelu="quick")  # of CLIP-B/32
        >>> text.count_params()
        63428096
    """
    check_positive(num_layers=num_layers)
    design = BlockOptions(**options)
    layer = functools.partial(layer_options, default_seed() if seed is None else seed, dtype)
    ids, *masks = (
        keras.Input((None,), dtype="int32", name=key)
        for key in ("input_ids", "attention_mask")[: 1 + attention_mask]
    )
    x = TextEmbedding(vocab_size, context_length, hidden_size, **layer("text_embedding"))(ids)
    masked: dict[str, Any] = {}
    if causal or masks:
        masked["attention_mask"] = TextMask(causal, name="text_mask")(ids, *masks)
    numerics: dict[str, Any] = {"gelu": gelu, "layer_norm_epsilon": layer_norm_epsilon}
    for i in range(num_layers):
        named = layer(f"encoderblock_{i}")
        x = EncoderBlock(num_heads, mlp_dim, options=design, **numerics, **named)(x, **masked)
    x = NORMALIZATIONS[design.norm](layer_norm_epsilon, "encoder_norm", dtype=dtype)(x)
    x = TakeToken(pooling, end_id, dtype=dtype, name="pooled")(x, ids)
    if projection_dim is not None:
        check_positive(projection_dim=projection_dim)
        dense = layer("projection")
        kernel = lecun_normal(hidden_size, dense.pop("seed"))
        bias = {"use_bias": projection_use_bias}
        x = keras.layers.Dense(projection_dim, kernel_initializer=kernel, **bias, **dense)(x)
    x = keras.layers.UnitNormalization(dtype=dtype, name="unit_length")(x)
    return keras.Model([ids, *masks] if masks else ids, x, name=name)


@dataclasses.dataclass(frozen=True)
class ImageText:
    """An image and a text tower that were trained together, as from `weights.image_text`.

    Attributes:
        image: Maps images `(B, H, W, C)` to embeddings of length 1, `(B, E)`.
        text: Maps ids `(K, N)` to embeddings of length 1, `(K, E)`; a `TextTransformer`.
        logit_scale: The natural logarithm of the factor of the cosines.
        logit_bias: The number added to the products in a SigLIP; None in a CLIP.

    Example:
        >>> tower = VisionTransformer(32, 16, 48, 1, 3, 96, num_classes=8, head_use_bias=False)
        >>> text = TextTransformer(60, 8, 16, 1, 2, 32, projection_dim=8)
        >>> towers = ImageText(with_unit_length(tower), text, logit_scale=2.66)
        >>> ids = np.array([[1, 5, 59], [1, 7, 59]])
        >>> keras.ops.shape(towers.logits(np.ones((2, 32, 32, 3)), ids))
        (2, 2)
    """

    image: keras.Model
    text: keras.Model
    logit_scale: float
    logit_bias: float | None = None

    def logits(self, images, input_ids):
        """Computes how well texts fit images, before the softmax of CLIP or sigmoid of SigLIP.

        Args:
            images: `(B, H, W, C)`, as `image.preprocessing` makes them.
            input_ids: The ids of K texts `(K, N)`, or what else `text` takes.

        Returns:
            A tensor `(B, K)`.
        """
        cosines = ops.matmul(self.image(images), ops.transpose(self.text(input_ids)))
        return cosines * math.exp(self.logit_scale) + (self.logit_bias or 0.0)


def with_unit_length(model: keras.Model) -> ImageModel:
    """Scales the features of an image tower to length 1.

    Args:
        model: A model whose outputs are `(B, E)`.

    Returns:
        An `ImageModel` that shares the weights of `model`.

    Example:
        >>> model = VisionTransformer(32, 16, 48, 1, 3, 96, num_classes=None)
        >>> features = with_unit_length(model)(np.ones((1, 32, 32, 3)))
        >>> round(float(keras.ops.norm(features)), 4)
        1.0
    """
    dtype = keras.dtype_policies.get(model.dtype_policy).variable_dtype
    normalize = keras.layers.UnitNormalization(dtype=dtype, name="image_unit_length")
    return copy_description(
        ImageModel(model.input, normalize(model.output), name=model.name), model
    )
