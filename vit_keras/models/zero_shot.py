"""Classifiers built from text embeddings, for models that were trained with a text tower."""

from collections.abc import Sequence

import keras
import numpy as np

from vit_keras.layers import FeatureAdapter
from vit_keras.layers.common import check_choice
from vit_keras.models.description import with_outputs
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
    adapter_dim: int | None = None,
    seed: int | None = None,
) -> ImageModel:
    """Builds a classifier whose classes are texts (CLIP, arXiv 2103.00020, Section 3.1.2).

    The logit of a class is `scale` times the cosine between the image's and the text's embeddings,
    plus `bias`. All of this becomes the weights of an ordinary linear `head`, so the classifier is
    saved, evaluated and exported like any other. An OWL-ViT (arXiv 2205.06230) finds the texts: its
    patches have scales and shifts of their own, so `scale`, `bias`, `activation` and `adapter_dim`
    have no effect.

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
        logits of any object.

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
    texts = _directions(embeddings, x.shape[-1])
    if labels is not None:
        labels = check_class_names(labels, len(texts))
    if isinstance(model.output, dict):
        finder = _finder(model, texts)
        finder.class_names = labels
        return finder
    dtype = keras.dtype_policies.get(model.dtype_policy).variable_dtype
    if adapter_dim is not None:
        x = FeatureAdapter(adapter_dim, seed=seed, dtype=dtype, name="adapter")(x)
    x = keras.layers.UnitNormalization(dtype=dtype, name="unit_length")(x)
    head = keras.layers.Dense(len(texts), dtype=dtype, name="head")
    classifier = with_outputs(model, head(x))
    head.set_weights([scale * texts.T, np.full(len(texts), bias)])
    classifier.class_names = None if labels is None else list(labels)
    classifier.task = TASKS[activation]
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
            "CLIP's with its projection, which has no bias, SigLIP's without a head, or OWL-ViT. "
            f"Received: model {model.name!r} with outputs {model.output_shape}, which ends "
            f"in {last.name!r}"
        )
    projection = keras.layers.Dense.from_config({**last.get_config(), "name": "projection"})
    x = projection(last.input)
    projection.set_weights(last.get_weights())
    return x


def _finder(model, texts):
    """An OWL-ViT whose logits are (cosine + shift) · scale, with both from each patch.

    One product computes the sum. TensorFlow's `Add` treats a shift as a bias, which LiteRT refuses.
    """
    outputs = dict(model.output)
    x, shift, scale = (outputs.pop(name) for name in ("embeddings", "shift", "scale"))
    x = keras.layers.Concatenate(dtype=x.dtype, name="shifted")([x, shift])  # (B, N, E + 1)
    head = keras.layers.Dense(len(texts), use_bias=False, dtype=x.dtype, name="head_texts")
    x = keras.layers.Multiply(dtype=x.dtype, name="logits")([head(x), scale])
    head.set_weights([np.insert(texts, texts.shape[1], 1, axis=1).T])
    return with_outputs(model, {"logits": x, **outputs})


def _directions(embeddings, size):
    """Embeddings scaled to length 1, in float64."""
    texts = np.asarray(embeddings, "float64")
    if texts.ndim != 2 or not len(texts) or texts.shape[1] != size:
        raise ValueError(
            f"`embeddings` must have shape (K, {size}), as image embeddings have {size} numbers. "
            f"Received: shape {texts.shape}. Make them with the text tower of the same model"
        )
    lengths = np.linalg.norm(texts, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise ValueError("`embeddings` must be finite and not zero. Received: other values")
    return texts / lengths
