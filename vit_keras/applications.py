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
from vit_keras.weights import load

POOLINGS = {
    "avg": keras.layers.GlobalAveragePooling1D,
    "max": keras.layers.GlobalMaxPooling1D,
}

_DOC = """Vision Transformer ViT-{variant} of arXiv 2010.11929.

    Args:
        include_top: whether to end in the classifier. Without it the outputs are the normalised
            tokens `(B, 1 + N, {hidden_size})`, the class token first.
        weights: None for random weights, or the path of a `.keras` or `.weights.h5` file.
        input_tensor: a Keras tensor to use instead of new image input.
        input_shape: `(height, width, channels)`, multiples of {patch_size} pixels; (224, 224, 3)
            by default.
        pooling: without the top, None for all tokens, "avg" or "max" for one vector
            `(B, {hidden_size})` of the patches' tokens.
        classes: number of classes of the classifier.
        classifier_activation: activation of the classifier, None for logits.
        name: name of the model.

    Returns:
        A functional `keras.Model`, `(B, height, width, channels)` in [-1, 1] -> `(B, classes)`.

    Raises:
        ValueError: for an unknown `weights` or `pooling`, a shape that is not static, or one that
            {patch_size} does not divide.
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
        classes=1000,
        classifier_activation="softmax",
        name=name,
    ):
        _check(weights, pooling, include_top)
        images = _images(input_tensor, input_shape)
        model = VisionTransformer(
            **size,
            image_size=None,
            num_classes=classes if include_top else None,
            classifier_activation=classifier_activation,
            input_tensor=images,
            name=name,
        )
        model = model if include_top else _without_top(model, pooling)
        return model if weights is None else load(model, weights)

    build.__name__ = build.__qualname__ = function
    build.__doc__ = _DOC.format(variant=variant, **size)
    return build


def _check(weights, pooling, include_top):
    if keras.config.image_data_format() != "channels_last":
        raise ValueError(
            "The Vision Transformers take images with channels last. "
            'Received: image_data_format="channels_first"; call '
            'keras.config.set_image_data_format("channels_last")'
        )
    if weights is not None and not os.path.isfile(weights):
        raise ValueError(
            "`weights` must be None or the path of an existing `.keras` or `.weights.h5` file. "
            f"Received: weights={weights!r}"
        )
    if pooling is not None and (include_top or pooling not in POOLINGS):
        raise ValueError(
            '`pooling` must be None, or "avg" or "max" with include_top=False. '
            f"Received: pooling={pooling!r}, include_top={include_top}"
        )


def _images(input_tensor, input_shape):
    if input_shape is not None and (len(input_shape) != 3 or None in input_shape):
        raise ValueError(
            "`input_shape` must be a static (height, width, channels). "
            f"Received: input_shape={input_shape}"
        )
    if input_tensor is None:
        return keras.Input(input_shape or (224, 224, 3), name="images")
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
