"""What a variant's row becomes: a constructor that is called as those of `keras.applications`."""

import os

import keras
from keras.applications.imagenet_utils import preprocess_input as _preprocess_input

from vit_keras import variants
from vit_keras.layers import DropClassToken
from vit_keras.models import ImageModel, from_variant
from vit_keras.weights import load

POOLINGS = {
    "avg": keras.layers.GlobalAveragePooling1D,
    "max": keras.layers.GlobalMaxPooling1D,
}

_DOC = """{title}.

    Args:
        include_top: whether to end in the classifier. Without it the outputs are {features}.
        weights: None for random weights, or the path of a `.keras` or `.weights.h5` file.
        input_tensor: a Keras tensor to use instead of new image input.
        input_shape: `(height, width, channels)`, {sides}; (224, 224, 3) by default.
        pooling: without the top, None for {all}, "avg" or "max" for one vector
            `(B, {width})` of {pooled}.
        classes: number of classes of the classifier.
        classifier_activation: activation of the classifier, None for logits.
        name: name of the model.

    Returns:
        A functional `keras.Model`, `(B, height, width, channels)` in [-1, 1] -> `(B, classes)`.

    Raises:
        ValueError: for an unknown `weights` or `pooling`, or a shape that is not static{or_misfit}.
    """
_TOKENS = {
    "features": """the normalised
            tokens `(B, 1 + N, {width})`, the class token first""",
    "sides": "multiples of {stride} pixels",
    "all": "all tokens",
    "pooled": "the patches' tokens",
    "or_misfit": """ or
            that {stride} does not divide""",
}
_MAP = {
    "features": """the normalised
            and rectified map `(B, height / 32, width / 32, {width})`""",
    "sides": "of any size",
    "all": "the map",
    "pooled": "its cells",
    "or_misfit": "",
}
# A kind of variant: its documentation, and the layer whose output its features are.
_KINDS = {
    variants.Variant: (
        "Vision Transformer ViT-{variant} of arXiv 2010.11929",
        _TOKENS,
        "encoder_norm",
    ),
    variants.HybridVariant: (
        "Hybrid of ResNet and Vision Transformer {variant} of arXiv 2010.11929",
        _TOKENS,
        "encoder_norm",
    ),
    variants.ResNetVariant: (
        "BiT's ResNet {variant} (arXiv 1912.11370), the baseline of arXiv 2010.11929",
        _MAP,
        "relu",
    ),
}


def preprocess_input(x, data_format=None):
    """Scales pixels from [0, 255] to [-1, 1], as the published models want them.

    A floating-point NumPy array is changed in place, as by every Keras application.
    """
    return _preprocess_input(x, data_format=data_format, mode="tf")


def application(variant: str, name: str, function: str):
    """The constructor of one variant, called `function`, of models called `name`."""

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
        model = from_variant(
            variant,
            image_size=None,
            num_classes=classes if include_top else None,
            classifier_activation=classifier_activation,
            input_tensor=images,
            name=name,
        )
        model = model if include_top else _without_top(model, variant, pooling)
        return model if weights is None else load(model, weights)

    build.__name__ = build.__qualname__ = function
    build.__module__ = "vit_keras.applications"
    build.__doc__ = _documentation(variant)
    return build


def _documentation(variant):
    row = variants.get(variant)
    title, texts, _ = _KINDS[type(row)]
    facts = {"variant": variant, "stride": row.stride, "width": row.feature_size}
    filled = {part: text.format(**facts) for part, text in texts.items()}
    return _DOC.format(title=title.format(**facts), **filled, **facts)


def _check(weights, pooling, include_top):
    if keras.config.image_data_format() != "channels_last":
        raise ValueError(
            "The models take images with channels last. "
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


def _without_top(model, variant, pooling):
    _, _, layer = _KINDS[type(variants.get(variant))]
    x = model.get_layer(layer).output
    if pooling is not None:
        patches = keras.layers.Reshape((-1, x.shape[-1]), name="cells")  # (B, h·w, C)
        x = (DropClassToken(name="patch_tokens") if len(x.shape) == 3 else patches)(x)
        x = POOLINGS[pooling](name=f"{pooling}_pool")(x)
    return ImageModel(model.input, x, name=model.name)
