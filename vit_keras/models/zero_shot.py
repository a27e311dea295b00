"""Classifiers from embeddings of texts, for models that were trained with a text tower."""

from collections.abc import Sequence

import keras
import numpy as np

from vit_keras.layers.base import check_choice
from vit_keras.models.description import copy_description
from vit_keras.models.image_model import ImageModel
from vit_keras.support.keras_internals import operation_of
from vit_keras.support.tasks import Task, check_class_names

TASKS = {"softmax": Task("classes"), "sigmoid": Task("labels")}


def head_from_text(
    model: keras.Model,
    embeddings: np.ndarray,
    scale: float,
    bias: float = 0.0,
    labels: Sequence[str] | None = None,
    activation: str = "softmax",
) -> ImageModel:
    """Builds a classifier whose classes are texts (CLIP, arXiv 2103.00020, Section 3.1.2).

    The logit of a class is `scale` times the cosine between the embeddings of the image and of the
    text, plus `bias`. All of this becomes the weights of an ordinary linear `head`, so the
    classifier is saved, evaluated and exported as any other.

    Args:
        model: The image tower, whose outputs `(B, E)` are embeddings of images: CLIP's with its
            projection, or SigLIP's without a head.
        embeddings: The embeddings of K texts by the text tower of the same model, `(K, E)`. Their
            lengths have no effect.
        scale: What cosines are multiplied by: the exponential of the model's `logit_scale`.
        bias: What is added to each logit: SigLIP's `logit_bias`.
        labels: The names of the K classes; None for none.
        activation: "softmax" where one of the texts fits an image, as in CLIP, or "sigmoid" where
            any number of them does, as in SigLIP (arXiv 2303.15343). It decides the model's `task`.

    Returns:
        An `ImageModel` that gives logits `(B, K)` and shares the weights of `model`.

    Raises:
        ValueError: The model gives no embeddings, an array has another shape or a text without
            direction, or there are not as many labels as texts.

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
    texts = _directions(embeddings, x.shape[-1])
    if labels is not None:
        labels = check_class_names(labels, len(texts))
    dtype = keras.dtype_policies.get(model.dtype_policy).variable_dtype
    x = keras.layers.UnitNormalization(dtype=dtype, name="unit_length")(x)
    head = keras.layers.Dense(len(texts), dtype=dtype, name="head")
    classifier = ImageModel(model.input, head(x), name=model.name)
    head.set_weights([scale * texts.T, np.full(len(texts), bias)])
    copy_description(classifier, model)
    classifier.class_names = None if labels is None else list(labels)
    classifier.task = TASKS[activation]
    return classifier


def _embeddings_of(model):
    """The output of a tower, whose projection is renamed so that the classifier can be `head`."""
    last = operation_of(model.output)
    if last.name != "head" and len(model.output.shape) == 2:
        return model.output
    if last.name != "head" or last.use_bias or last.activation is not keras.activations.linear:
        raise ValueError(
            "A classifier of texts is made from an image tower, whose outputs (B, E) are "
            "embeddings: of CLIP with its projection, which has no bias, or of SigLIP without a "
            f"head. Received: model {model.name!r} with outputs {model.output_shape}, which ends "
            f"in {last.name!r}"
        )
    projection = keras.layers.Dense.from_config({**last.get_config(), "name": "projection"})
    x = projection(last.input)
    projection.set_weights(last.get_weights())
    return x


def _directions(embeddings, size):
    """Embeddings of length 1, in float64."""
    texts = np.asarray(embeddings, "float64")
    if texts.ndim != 2 or not len(texts) or texts.shape[1] != size:
        raise ValueError(
            f"`embeddings` must have shape (K, {size}), since the images' have {size} numbers. "
            f"Received: shape {texts.shape}. Make them with the text tower of the same model"
        )
    lengths = np.linalg.norm(texts, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise ValueError("`embeddings` must be finite and not zero. Received: other values")
    return texts / lengths
