"""The check of a model's images, with one error on every backend.

Keras compares shapes in `model(images)`, but on JAX not in `predict`, and it lets images of one
channel pass where a model takes three.
"""

from typing import Any

import keras

from vit_keras.support.preprocessing import as_inputs


def check_images(model: keras.Model, images: Any) -> None:
    """Checks that a model takes images of this shape.

    Args:
        model: A functional model. One with several inputs is left to Keras.
        images: What the model is called with or trained on: a tensor, an array or a
            `tf.data.Dataset`. Other things pass. As in Keras, a grayscale model also takes images
            `(B, H, W)`.

    Raises:
        ValueError: If the model takes images of another shape.
    """
    shape = _shape_of(images)
    if len(model.inputs) != 1 or shape is None:
        return
    expected = model.inputs[0].shape
    if not _fits(expected, shape):
        remedy = next(remedy for applies, remedy in REMEDIES if applies(expected, shape))
        raise ValueError(
            f"This model takes images of {_written(expected)}. Received: {_written(shape)}. "
            + remedy.format(channels=expected[-1])
        )


def check_inputs(model: Any, images: Any, least: int = 0, warns: bool = True) -> Any:
    """Returns what `fit`, `evaluate` or `predict` got, lists of pictures as an array, checked.

    Args:
        model: An `ImageModel`.
        images: As for `check_images`, or a list of pictures `(H, W, C)`.
        least: The least number of images.
        warns: As in `as_inputs`.

    Raises:
        ValueError: As `check_images` and `as_inputs`, or if there are fewer images.
    """
    if len(model.inputs) == 1:
        images = as_inputs(images, model.preprocessing, warns)
    check_images(model, images)
    if least and (_shape_of(images) or (None,))[0] == 0:
        raise ValueError("Training and evaluation need at least one image. Received: none")
    return images


def _shape_of(images):
    """The shape as a tuple, or None where it is not known."""
    spec = getattr(images, "element_spec", None)
    if spec is not None:  # a data set, which may tell its shapes only while it is read
        shape = _shape_of(spec[0] if isinstance(spec, tuple) else spec)
        return None if shape is None or None in shape[1:] else shape
    shape = getattr(images, "shape", None)
    return None if shape is None or getattr(shape, "rank", 0) is None else tuple(shape)


def _fits(expected, shape):
    if len(shape) == len(expected) - 1 and expected[-1] == 1:
        shape = (*shape, 1)  # Keras adds the axis
    if len(shape) == len(expected) + 1 and shape[-1] == 1:
        shape = shape[:-1]  # Keras drops it
    return len(shape) == len(expected) and all(
        size in (None, received) for size, received in zip(expected[1:], shape[1:])
    )


def _written(shape):
    """`(None, 224, 224, 3)` as "(B, 224, 224, 3)", with `?` for other unknown sizes."""
    batch, *sizes = shape
    axes = ["B" if batch is None else batch, *("?" if size is None else size for size in sizes)]
    return f"({', '.join(map(str, axes))})"


def _is_one_image(expected, shape):
    return _fits(expected, (1, *shape))


def _has_other_channels(expected, shape):
    return len(shape) == len(expected) and expected[-1] != shape[-1]


def _has_channels_first(expected, shape):
    return _has_other_channels(expected, shape) and expected[-1] == shape[1]


# What to do about the first of these faults that applies; the last one always does.
REMEDIES = (
    (_is_one_image, "This is one image, so add a batch axis: images[None]"),
    (_has_channels_first, "Move the channels to the last axis: np.moveaxis(images, 1, -1)"),
    (_has_other_channels, "Convert them to {channels} channel(s)"),
    (
        lambda expected, shape: len(shape) != len(expected),
        "Give them the axes (batch, height, width, channels)",
    ),
    (
        lambda expected, shape: True,
        "Resize them, or make a model for their size: "
        "vit_keras.models.with_image_size(model, (height, width))",
    ),
)
