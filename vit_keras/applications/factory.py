"""What a variant's row becomes: a constructor that is called as those of `keras.applications`."""

import os

import keras
from keras.applications.imagenet_utils import preprocess_input as _preprocess_input

from vit_keras import variants
from vit_keras import weights as checkpoints
from vit_keras.applications.documentation import documentation
from vit_keras.layers import DropClassToken
from vit_keras.models import ImageModel, from_variant, preprocessing_of

POOLINGS = {
    "avg": keras.layers.GlobalAveragePooling1D,
    "max": keras.layers.GlobalMaxPooling1D,
}


class _Default(int):
    """A default that can be told from the same number written by a caller."""


CLASSES = _Default(1000)


def preprocess_input(x, data_format=None, model=None):
    """Scales pixels from [0, 255] to [-1, 1], as Google's models want them.

    With a `model`, scales them as the source of its weights did: an ImageNet mean and deviation for
    torchvision's, for example. A floating-point NumPy array is changed in place where no model is
    given, as by every Keras application.
    """
    if model is None:
        return _preprocess_input(x, data_format=data_format, mode="tf")
    return preprocessing_of(model).normalise(keras.ops.cast(x, "float32"))


def application(variant: str, name: str, function: str):
    """The constructor of one variant, called `function`, of models called `name`."""

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
        model = from_variant(
            variant,
            **_published_form(variant, row, include_top),
            image_size=None,
            num_classes=classes if include_top else None,
            classifier_activation=classifier_activation,
            input_tensor=_images(input_tensor, input_shape, row.resolution if row else 224),
            name=name,
        )
        model = model if include_top else _without_top(model, variant, pooling)
        if weights is None:
            return model
        path = weights if row is None else checkpoints.resolve(variant, weights)
        return checkpoints.load(model, path, head="keep" if include_top else "drop")

    build.__name__ = build.__qualname__ = function
    build.__module__ = "vit_keras.applications"
    build.__doc__ = documentation(variant)
    return build


def _check(pooling, include_top):
    if keras.config.image_data_format() != "channels_last":
        raise ValueError(
            "The models take images with channels last. "
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
    is_file = isinstance(weights, (str, os.PathLike)) and os.path.exists(weights)
    if is_file and weights not in checkpoints.names(variant):
        return None
    return checkpoints.lookup(variant, weights)


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


def _published_form(variant, row, include_top):
    """What the model of a published file has beyond its variant."""
    if row is None or isinstance(variants.get(variant), variants.ResNetVariant):
        return {}
    return {"representation_size": row.representation_size if include_top else None}


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


def _without_top(model, variant, pooling):
    resnet = isinstance(variants.get(variant), variants.ResNetVariant)
    x = model.get_layer("relu" if resnet else "encoder_norm").output
    if pooling is not None:
        cells = keras.layers.Reshape((-1, x.shape[-1]), name="cells")  # (B, h·w, C)
        x = (cells if resnet else DropClassToken(name="patch_tokens"))(x)
        x = POOLINGS[pooling](name=f"{pooling}_pool")(x)
    return ImageModel(model.input, x, name=model.name)
