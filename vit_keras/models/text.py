"""Text towers, pairs of an image and a text tower, and classifiers whose classes are texts."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from vit_keras.layers import EncoderBlock, FeatureAdapter, TakeToken, TextEmbedding, TextMask
from vit_keras.layers.base import LayerArguments, default_seed, lecun_normal
from vit_keras.layers.common import NORMALIZATIONS, BlockOptions, check_choice, check_positive
from vit_keras.models.common import dense, variable_dtype
from vit_keras.models.description import with_outputs
from vit_keras.models.image_model import ImageModel, JoinedModel
from vit_keras.support.keras_internals import operation_of
from vit_keras.support.tasks import Task, check_class_names

LARGEST_SCALE = math.log(100)  # of a CLIP in training


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
        projection_dim: The size of the embeddings; None for no projection, which leaves D numbers.
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
        TypeError: If an argument is unknown.

    Example:
        >>> text = TextTransformer(49408, 77, 512, 12, 8, 2048, 512, gelu="quick")  # of CLIP-B/32
        >>> text.count_params()
        63428096
    """
    check_positive(num_layers=num_layers)
    design = BlockOptions(**options)
    layer = LayerArguments(seed, dtype)
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
    x = NORMALIZATIONS[design.norm](epsilon=layer_norm_epsilon, **layer.unseeded("encoder_norm"))(x)
    x = TakeToken(pooling, end_id, dtype=dtype, name="pooled")(x, ids)
    if projection_dim is not None:
        named = layer("projection")
        kernel = {"kernel_initializer": lecun_normal(hidden_size, named["seed"])}
        x = dense(x, projection_dim, named, use_bias=projection_use_bias, **kernel)
    x = keras.layers.UnitNormalization(dtype=dtype, name="unit_length")(x)
    return keras.Model([ids, *masks] if masks else ids, x, name=name)


@keras.saving.register_keras_serializable(package="vit_keras")
class PairLogits(keras.layers.Layer):
    """Multiplies the embeddings of images `(B, E)` and texts `(K, E)`: logits `(B, K)`.

    In a CLIP, the weight is `logit_scale`, the logarithm of a factor that training keeps below 100.
    In a SigLIP, `logit_scale` has no bound, and there is a second weight, `logit_bias`.
    """

    def __init__(self, logit_scale: float, logit_bias: float | None = None, **kwargs):
        super().__init__(**kwargs)
        self.initial = {"logit_scale": logit_scale, "logit_bias": logit_bias}

    def build(self, x_shape, texts_shape):
        clip = lambda scale: ops.clip(scale, 0.0, LARGEST_SCALE)
        bound = clip if self.initial["logit_bias"] is None else None
        for name, value in self.initial.items():
            start = keras.initializers.Constant(value or 0.0)
            rest = {"trainable": value is not None, "constraint": bound}
            setattr(self, name, self.add_weight(name=name, shape=(), initializer=start, **rest))

    def call(self, x, texts):
        cosines = ops.matmul(x, ops.transpose(texts))
        return cosines * ops.exp(self.logit_scale) + self.logit_bias

    def compute_output_shape(self, x_shape, texts_shape):
        return (x_shape[0], texts_shape[0])


@dataclasses.dataclass(frozen=True)
class ImageText:
    """An image tower and a text tower trained together, as `weights.image_text` reads them.

    Attributes:
        image: Maps images `(B, H, W, C)` to embeddings of length 1, `(B, E)`.
        text: Maps ids `(K, N)` to embeddings of length 1, `(K, E)`; a `TextTransformer`.
        logit_scale: The natural logarithm of the factor of the cosines.
        logit_bias: The number added to the products in a SigLIP; None in a CLIP.
        folder: The folder that the towers were read from, whose tokenizer `weights.save` copies.

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
    folder: str | None = None

    def logits(self, images, input_ids):
        """Computes how well texts fit images, before the softmax of CLIP or sigmoid of SigLIP.

        Args:
            images: `(B, H, W, C)`, as `image.preprocessing` makes them.
            input_ids: The ids of K texts `(K, N)`, or other inputs that `text` takes.

        Returns:
            A tensor `(B, K)`.
        """
        logits = PairLogits(self.logit_scale, self.logit_bias, dtype="float32")
        return logits(self.image(images), self.text(input_ids))


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
    dtype = variable_dtype(model.dtype_policy)
    normalize = keras.layers.UnitNormalization(dtype=dtype, name="image_unit_length")
    return with_outputs(model, normalize(model.output))


def contrastive_model(towers: ImageText, seed: int | None = None) -> keras.Model:
    """Builds the model that trains two towers, whose weights it shares, on images with texts.

    `vit_keras.training.ContrastiveLoss` reads its logits. Its targets are numbers `(B,)`, equal for
    equal texts. With `towers.image.trainable = False`, only the text tower learns (LiT, arXiv
    2111.07991).

    Args:
        towers: From `weights.image_text`, or two new towers. The image tower's `head` is drawn anew
            if it is zero, as new heads are, since zeros have no direction.
        seed: The seed of a new head; None draws one.

    Returns:
        A model that maps images `(B, H, W, C)` and the inputs of the text tower, in a list, to
        logits `(B, B)`.

    Example:
        >>> tower = VisionTransformer(32, 16, 48, 1, 3, 96, num_classes=8, head_use_bias=False)
        >>> text = TextTransformer(60, 8, 16, 1, 2, 32, projection_dim=8)
        >>> towers = ImageText(with_unit_length(tower), text, logit_scale=2.66)
        >>> model = contrastive_model(towers)
        >>> model.compile("adam", vit_keras.training.ContrastiveLoss())
        >>> ids = np.array([[1, 5, 59], [1, 7, 59]])
        >>> history = model.fit([np.ones((2, 32, 32, 3)), ids], np.arange(2), verbose=0)
        >>> trained = towers_of(model)
    """
    for head in (layer for layer in towers.image.layers if layer.name == "head"):
        if not ops.convert_to_numpy(head.kernel).any():
            draw = lecun_normal(head.kernel.shape[0], default_seed() if seed is None else seed)
            head.kernel.assign(draw(head.kernel.shape))
    images, *texts = (
        keras.Input(x.shape[1:], dtype=x.dtype, name=x.name)
        for x in [*towers.image.inputs, *towers.text.inputs]
    )
    logits = PairLogits(towers.logit_scale, towers.logit_bias, dtype="float32", name="pair_logits")
    texts_out = towers.text(texts if len(texts) > 1 else texts[0])
    return JoinedModel([images, *texts], logits(towers.image(images), texts_out))


def towers_of(model: keras.Model) -> ImageText:
    """Returns the towers of a model from `contrastive_model`, with its scale and bias.

    Example: see `contrastive_model`.
    """
    image, text = (layer for layer in model.layers if isinstance(layer, keras.Model))
    scale, bias = map(float, model.layers[-1].get_weights())
    has_bias = model.layers[-1].initial["logit_bias"] is not None
    return ImageText(image, text, scale, bias if has_bias else None)


TASKS = {"softmax": Task("classes"), "sigmoid": Task("labels")}


def head_from_text(
    model: keras.Model,
    embeddings: np.ndarray,
    scale: float,
    bias: float = 0.0,
    labels: Sequence[str] | None = None,
    activation: str = "softmax",
    adapter_dim: int | None = None,
    seed: int | None = None,
) -> ImageModel:
    """Builds a classifier whose classes are texts (CLIP, arXiv 2103.00020, Section 3.1.2).

    The logit of a class is `scale` times the cosine between the image's and the text's embeddings,
    plus `bias`. All of this becomes the weights of an ordinary linear `head`, so the classifier is
    saved, evaluated and exported like any other. An OWL-ViT (arXiv 2205.06230) locates the objects
    that the texts describe: its patches have their own scales and shifts, so `scale`, `bias`,
    `activation` and `adapter_dim` have no effect.

    Args:
        model: The image tower, whose outputs `(B, E)` are image embeddings: CLIP's with its
            projection, SigLIP's without a head, or an OWL-ViT.
        embeddings: The embeddings of K texts from the same model's text tower, `(K, E)`. Their
            lengths have no effect.
        scale: The factor of the cosines: the exponential of the model's `logit_scale`.
        bias: The number to add to each logit: SigLIP's `logit_bias`.
        labels: The names of the K classes, or None.
        activation: "softmax" if exactly one of the texts fits an image, as in CLIP, or "sigmoid" if
            any number of them may, as in SigLIP (arXiv 2303.15343). It determines the model's
            `task`.
        adapter_dim: The hidden units of a `FeatureAdapter` on the image embeddings, called
            `adapter`, whose training starts from the classifier without it; None for no adapter.
        seed: The seed of the adapter.

    Returns:
        An `ImageModel` that gives logits `(B, K)` and shares the weights of `model`. For an OWL-ViT
        with N patches, it gives a dictionary of "logits" `(B, N, K)`, whose sigmoids are
        probabilities, "boxes" as in `models.detector`, and for OWLv2 "objectness" `(B, N)`, the
        logits of there being any object at all.

    Raises:
        ValueError: If the model gives no embeddings, if an array has the wrong shape or a zero
            embedding, or if the numbers of labels and texts differ.

    Example:
        >>> tower = VisionTransformer(
        ...     32, 16, 48, 1, 3, 96, num_classes=8, pre_norm=True, head_use_bias=False
        ... )
        >>> texts = np.random.default_rng(0).normal(size=(2, 8))
        >>> classifier = head_from_text(tower, texts, scale=100.0, labels=["cat", "dog"])
        >>> classifier.output_shape, classifier.class_names
        ((None, 2), ['cat', 'dog'])
    """
    check_choice(activation, TASKS, "activation")
    x = _embeddings_of(model)
    texts = _directions(embeddings)
    if labels is not None:
        labels = list(check_class_names(labels, len(texts)))
    if isinstance(model.output, dict):
        return _finder(model, texts, labels)
    dtype = variable_dtype(model.dtype_policy)
    if adapter_dim is not None:
        x = FeatureAdapter(adapter_dim, seed=seed, dtype=dtype, name="adapter")(x)
    x = keras.layers.UnitNormalization(dtype=dtype, name="unit_length")(x)
    head = keras.layers.Dense(len(texts), dtype=dtype, name="head")
    classifier = with_outputs(model, head(x), class_names=labels, task=TASKS[activation])
    head.set_weights([scale * texts.T, np.full(len(texts), bias)])
    return classifier


def _embeddings_of(model):
    """The output of a tower, with its projection renamed so that the classifier can be `head`."""
    if isinstance(model.output, dict) and "embeddings" in model.output:
        return model.output["embeddings"]
    output = keras.tree.flatten(model.output)[0]
    last = operation_of(output)
    if last.name != "head" and len(output.shape) == 2:
        return output
    if last.name != "head" or last.use_bias or last.activation is not keras.activations.linear:
        raise ValueError(
            "A text classifier needs an image tower whose outputs (B, E) are embeddings: "
            "CLIP's with its bias-free projection, SigLIP's without a head, or OWL-ViT's. "
            f"Received: model {model.name!r} with outputs {model.output_shape}, which ends "
            f"in {last.name!r}"
        )
    projection = keras.layers.Dense.from_config({**last.get_config(), "name": "projection"})
    x = projection(last.input)
    projection.set_weights(last.get_weights())
    return x


def _finder(model, texts, labels):
    """An OWL-ViT whose logits are (cosine + shift) · scale; each patch has its own shift and scale.

    One product computes the sum. TensorFlow's `Add` treats a shift as a bias, which LiteRT refuses.
    """
    outputs = dict(model.output)
    x, shift, scale = (outputs.pop(name) for name in ("embeddings", "shift", "scale"))
    x = keras.layers.Concatenate(dtype=x.dtype, name="shifted")([x, shift])  # (B, N, E + 1)
    head = keras.layers.Dense(len(texts), use_bias=False, dtype=x.dtype, name="head_texts")
    x = keras.layers.Multiply(dtype=x.dtype, name="logits")([head(x), scale])
    head.set_weights([np.insert(texts, texts.shape[1], 1, axis=1).T])
    return with_outputs(model, {"logits": x, **outputs}, class_names=labels)


def _directions(embeddings):
    """Embeddings scaled to length 1, in float64."""
    texts = np.asarray(embeddings, "float64")
    lengths = np.linalg.norm(texts, axis=1, keepdims=True)
    if not ((lengths > 0) & (lengths < np.inf)).all():
        raise ValueError(
            f"`embeddings` must be finite and nonzero. Received: lengths {lengths.ravel()}"
        )
    return texts / lengths
