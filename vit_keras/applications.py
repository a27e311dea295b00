"""The variants as Keras applications: `model = vit_keras.applications.ViTB16(classes=10)`.

Called as the constructors of `keras.applications`; images go through `preprocess_input` first.
"""

import os

import keras
from keras.applications.imagenet_utils import decode_predictions
from keras.applications.imagenet_utils import preprocess_input as _preprocess_input

from vit_keras.layers import DropClassToken
from vit_keras.models import ImageModel, VisionTransformer
from vit_keras.variants import architecture
from vit_keras.weights import load, lookup, names, resolve

POOLINGS = {
    "avg": keras.layers.GlobalAveragePooling1D,
    "max": keras.layers.GlobalMaxPooling1D,
}


class _Default(int):
    """A default that can be told from the same number written by a caller."""


CLASSES = _Default(1000)

_DOC = """Vision Transformer ViT-{variant} of arXiv 2010.11929.

    Args:
        include_top: whether to end in the classifier. Without it the outputs are the normalised
            tokens `(B, 1 + N, {hidden_size})`, the class token first.
        weights: None for random weights, the path of a file of weights, or the name of a published
            checkpoint, which is downloaded to the Keras cache: {published}.
        input_tensor: a Keras tensor to use instead of new image input.
        input_shape: `(height, width, channels)`, multiples of {patch_size} pixels; by default
            (224, 224, 3), or the size that the published weights were trained on.
        pooling: without the top, None for all tokens, "avg" or "max" for one vector
            `(B, {hidden_size})` of the patches' tokens.
        classes: number of classes of the classifier; that of published weights where they are
            named, and then no other.
        classifier_activation: activation of the classifier, None for logits.
        name: name of the model.

    Returns:
        A functional `keras.Model`, `(B, height, width, channels)` in [-1, 1] -> `(B, classes)`.

    Raises:
        ValueError: for an unknown `weights` or `pooling`, `classes` or an activation that named
            weights do not have, a shape that is not static or that {patch_size} does not divide.
        FileNotFoundError, ConnectionError: published weights cannot be downloaded.
    """


def preprocess_input(x, data_format=None):
    """Scales pixels from [0, 255] to [-1, 1], as the published models want them.

    A floating-point NumPy array is changed in place, as by every Keras application.
    """
    return _preprocess_input(x, data_format=data_format, mode="tf")


def _application(variant: str, name: str, function: str):
    """The constructor of one variant."""
    size = architecture(variant)

    def build(
        include_top=True,
        weights=None,
        input_tensor=None,
        input_shape=None,
        pooling=None,
        classes=CLASSES,
        classifier_activation="softmax",
        name=name,
    ):
        _check(pooling, include_top)
        row = _published(variant, weights)
        classes = _classes(row, classes, include_top, classifier_activation)
        images = _images(input_tensor, input_shape, row.resolution if row else 224)
        model = VisionTransformer(
            **size,
            **_published_form(row, include_top),
            image_size=None,
            num_classes=classes if include_top else None,
            classifier_activation=classifier_activation,
            input_tensor=images,
            name=name,
        )
        model = model if include_top else _without_top(model, pooling)
        if weights is None:
            return model
        return load(model, weights if row is None else resolve(variant, weights))

    build.__name__ = build.__qualname__ = function
    published = ", ".join(map(repr, names(variant)))
    build.__doc__ = _DOC.format(variant=variant, published=published, **size)
    return build


def _check(pooling, include_top):
    if keras.config.image_data_format() != "channels_last":
        raise ValueError(
            "The Vision Transformers take images with channels last. "
            'Received: image_data_format="channels_first"; call '
            'keras.config.set_image_data_format("channels_last")'
        )
    if pooling is not None and (include_top or pooling not in POOLINGS):
        raise ValueError(
            '`pooling` must be None, or "avg" or "max" with include_top=False. '
            f"Received: pooling={pooling!r}, include_top={include_top}"
        )


def _published(variant, weights):
    """The row of `weights`, or None where they are a file or None."""
    if weights is None:
        return None
    is_file = isinstance(weights, (str, os.PathLike)) and os.path.isfile(weights)
    return None if is_file and weights not in names(variant) else lookup(variant, weights)


def _classes(row, classes, include_top, activation):
    """The number of classes; a published classifier has that of its file, softmax or logits."""
    if row is None or not include_top:
        return int(classes) if isinstance(classes, _Default) else classes
    if not isinstance(classes, _Default) and classes != row.num_classes:
        raise ValueError(
            f"`classes` must be {row.num_classes} with weights={row.weights!r} and "
            f"include_top=True. Received: classes={classes}; leave it out, or use "
            "include_top=False and put a classifier of your own on top"
        )
    if activation not in (None, "softmax"):
        raise ValueError(
            '`classifier_activation` must be None or "softmax" with published weights and '
            f"include_top=True. Received: classifier_activation={activation!r}"
        )
    return row.num_classes


def _published_form(row, include_top):
    """What the model of a published file has beyond its variant: Google's GELU is the tanh one."""
    if row is None:
        return {}
    return {"gelu": "tanh", "representation_size": row.representation_size if include_top else None}


def _images(input_tensor, input_shape, size):
    if input_shape is not None and (len(input_shape) != 3 or None in input_shape):
        raise ValueError(
            "`input_shape` must be a static (height, width, channels). "
            f"Received: input_shape={input_shape}"
        )
    if input_tensor is None:
        return keras.Input(input_shape or (size, size, 3), name="images")
    if keras.utils.is_keras_tensor(input_tensor):
        return input_tensor
    return keras.Input(tensor=input_tensor, name="images")


def _without_top(model, pooling):
    x = model.get_layer("encoder_norm").output
    if pooling is not None:
        x = DropClassToken(name="patch_tokens")(x)
        x = POOLINGS[pooling](name=f"{pooling}_pool")(x)
    return ImageModel(model.input, x, name=model.name)


ViTTi16 = _application("Ti/16", "vit_ti16", "ViTTi16")
ViTS16 = _application("S/16", "vit_s16", "ViTS16")
ViTS32 = _application("S/32", "vit_s32", "ViTS32")
ViTB8 = _application("B/8", "vit_b8", "ViTB8")
ViTB16 = _application("B/16", "vit_b16", "ViTB16")
ViTB32 = _application("B/32", "vit_b32", "ViTB32")
ViTL16 = _application("L/16", "vit_l16", "ViTL16")
ViTL32 = _application("L/32", "vit_l32", "ViTL32")
ViTH14 = _application("H/14", "vit_h14", "ViTH14")

__all__ = [
    "ViTB8",
    "ViTB16",
    "ViTB32",
    "ViTH14",
    "ViTL16",
    "ViTL32",
    "ViTS16",
    "ViTS32",
    "ViTTi16",
    "decode_predictions",
    "preprocess_input",
]
