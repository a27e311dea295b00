"""Which patches a model's answer rests on: attention, weighted by the answer's gradient."""

import keras
import numpy as np
from keras import ops

from vit_keras.layers.backends import lookup
from vit_keras.models.description import ends_in_softmax, has_class_token
from vit_keras.models.surgery import backbone_of, patch_grid, read_out, with_attention_weights


def explain(
    model: keras.Model,
    images: np.ndarray,
    class_index: int | np.ndarray | None = None,
    batch: int = 4,
) -> np.ndarray:
    """Computes how much each patch supports a class (arXiv 2103.15679, Section 3.1).

    The weights A of each layer's attention are multiplied by the gradients of the class's output,
    or of its logit before a softmax, with respect to them. Negative products are dropped, and the
    heads' mean is taken: Ā = E_h((∇A ⊙ A)⁺). The relevance of token j for token i starts as R = 1
    and grows by R ← R + ĀR from the first layer to the last.

    Args:
        model: A model with `EncoderBlock` layers, or one that calls such a model first. It maps
            images to outputs whose last axis is the classes, such as logits `(B, K)`, or
            `(B, h, w, K)`, which are summed over all places.
        images: `(B, H, W, C)`, prepared for the model.
        class_index: The class, or one for each image `(B,)`; None for the most probable one.
        batch: The number of images per batch. Each image needs memory for L·H·N² weights and
            as many gradients, for L layers, H heads and N tokens.

    Returns:
        Relevances `(B, h, w)` of the patches, at least 0: the class token's row of R without its
        own entry or, in a model without one, the mean of the patches' rows.

    Raises:
        ValueError: If the model has no `EncoderBlock`, or one that attends within windows; if
            `class_index` is not one of its classes; or if the backend computes no gradients.

    Example:
        >>> model = vit_keras.applications.ViTTi16(image_size=32, classes=3, weights=None)
        >>> vit_keras.models.explain(model, np.ones((2, 32, 32, 3), "float32"), 1).shape
        (2, 2, 2)
    """
    if lookup("gradients") is None:
        raise ValueError(
            f"Relevance needs gradients, which {keras.backend.backend()} does not compute. Use the "
            "backend jax, torch or tensorflow, or draw other --views"
        )
    backbone = backbone_of(model)
    weighted, wrappers = with_attention_weights(model)
    chosen = None if class_index is None else np.broadcast_to(class_index, len(images))
    if chosen is not None and not ((chosen >= 0) & (chosen < model.output_shape[-1])).all():
        raise ValueError(
            f"`class_index` must be from 0 to {model.output_shape[-1] - 1}. "
            f"Received: class_index={class_index}"
        )
    place, relevances = (patch_grid(backbone), has_class_token(backbone)), []
    softmax = model.layers[-1] if ends_in_softmax(model) else None
    for start in range(0, len(images), batch):
        part = slice(start, start + batch)
        classes = None if chosen is None else chosen[part]
        relevance = _relevance(weighted, wrappers, images[part], classes, softmax)
        relevances.append(read_out(relevance, *place))
    return np.concatenate(relevances)


def _relevance(model, wrappers, images, classes, softmax):
    """R after the last layer minus its start, `(B, N, N)` float64; `softmax` is a layer or None."""
    images = ops.convert_to_tensor(images)

    def score(*offsets):
        for wrapper, offset in zip(wrappers, offsets):
            wrapper.block.attention.offset = offset
        if softmax:
            softmax.activation = keras.activations.linear
        try:
            outputs, *_ = model(images, training=False)
        finally:
            for wrapper in wrappers:
                wrapper.block.attention.offset = None
            if softmax:
                softmax.activation = keras.activations.softmax
        outputs = ops.reshape(outputs, (len(images), -1, outputs.shape[-1]))
        outputs = ops.sum(ops.cast(outputs, "float32"), axis=1)  # (B, K)
        index = ops.argmax(outputs, axis=-1) if classes is None else classes
        return ops.sum(outputs * ops.one_hot(index, outputs.shape[-1]))

    _, *maps = model(images, training=False)
    zeros = [ops.zeros_like(weights) for weights in maps]
    gradients = lookup("gradients")(score, zeros)
    to_numpy = lambda x: ops.convert_to_numpy(x).astype("float64")
    relevance = start = np.eye(maps[0].shape[-1])
    for weights, gradient in zip(map(to_numpy, maps), map(to_numpy, gradients)):
        mean = np.maximum(weights * gradient, 0).mean(axis=1)  # (B, N, N)
        relevance = relevance + mean @ relevance
    return relevance - start
