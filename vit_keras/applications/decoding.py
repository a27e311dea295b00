"""Reads class names off predictions, with the conventions of `keras.applications`."""

from collections.abc import Sequence

import keras
from keras.applications import imagenet_utils

from vit_keras.support.preprocessing import as_numbers
from vit_keras.support.tasks import check_class_names

IMAGENET_CLASSES = 1000


def decode_predictions(
    preds,
    top: int = 5,
    class_names: Sequence[str] | None = None,
    model: keras.Model | None = None,
) -> list[list[tuple]]:
    """Decodes predictions into the names of their most likely classes.

    The names are `class_names`, or those that `model` carries, or else ImageNet's 1000.

    Args:
        preds: A batch of predictions, `(B, classes)`, as an array or tensor. Scores are returned as
            they are, so logits stay logits.
        top: The number of classes for each image.
        class_names: Optional names of your own classes, in the order of the predictions.
        model: Optional model that made the predictions. Its `class_names` are used if it has any.

    Returns:
        A list for each image of tuples `(class_name, class_description, score)`, the highest score
        first. ImageNet's classes have a WordNet ID as name, `("n02123045", "tabby", 0.9)`. Classes
        of your own are described by their name, `("cat", "cat", 0.9)`.

    Raises:
        ValueError: If `preds` is not two-dimensional, if its classes are not as many as the names
            or, without names, not ImageNet's 1000, or if `top` is not positive.

    Example:
        ```python
        model = vit_keras.applications.ViTB16(class_names=["cat", "dog"])
        for row in decode_predictions(model.predict(images), top=1, model=model):
            _, name, probability = row[0]
        ```
    """
    if not isinstance(preds, (list, tuple)):
        preds = keras.ops.convert_to_numpy(preds)
    preds = as_numbers(preds, "Predictions")
    if preds.ndim != 2:
        raise ValueError(
            f"`preds` must be a batch of predictions, (B, classes). Received: shape {preds.shape}"
        )
    if top < 1:
        raise ValueError(f"`top` must be positive. Received: top={top}")
    count = preds.shape[1]
    if class_names is None:
        class_names = getattr(model, "class_names", None) or None
    if class_names is not None:
        names = check_class_names(class_names, count)
        return [_decode(scores, names, top) for scores in preds]
    if count != IMAGENET_CLASSES:
        raise ValueError(
            f"Predictions without names must be of ImageNet's {IMAGENET_CLASSES} classes. "
            f"Received: {count} classes; pass `class_names`, or a `model` that carries them"
        )
    return imagenet_utils.decode_predictions(preds, top=top)


def _decode(scores, names, top):
    order = scores.argsort()[::-1][:top]
    return [(names[k], names[k], scores[k]) for k in order]
