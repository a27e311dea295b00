"""The model as it is served: uint8 pixels in, probabilities out, all in float32."""

import keras

from vit_keras.keras_internals import operation_of
from vit_keras.models import ImageModel, ends_in_softmax, preprocessing_of
from vit_keras.models.image_model import copy_description

OUTPUTS = ("softmax", "logits", "features")


def in_float32(model: keras.Model) -> keras.Model:
    """The same weights with every layer in float32: phones and servers have no mixed precision."""

    def clone(layer):
        return layer.__class__.from_config({**layer.get_config(), "dtype": "float32"})

    plain = keras.models.clone_model(model, clone_function=clone)
    plain.set_weights(model.get_weights())
    return copy_description(plain, model)


def serving_model(model: keras.Model, output: str = "softmax", raw: bool = False) -> keras.Model:
    """`model` behind its preprocessing: `(B, H, W, C)` uint8 -> `(B, K)`, in float32.

    `output` is "softmax", "logits", or "features", what the head reads. With `raw` the images are
    float32 and prepared already. `model` must be in float32; a second output of it comes second.
    """
    kind = "float32" if raw else "uint8"
    x = images = keras.Input(model.input_shape[1:], dtype=kind, name="images")
    if not raw:
        scale, offset = preprocessing_of(model).rescaling()
        x = keras.layers.Rescaling(scale, offset, dtype="float32", name="preprocessing")(x)
    x, *beside = keras.tree.flatten(_with_output(model, output)(x))
    if output == "softmax" and not ends_in_softmax(model):
        x = keras.layers.Softmax(dtype="float32", name="probabilities")(x)
    return ImageModel(images, [x, *beside] if beside else x, name=model.name)


def _with_output(model, output):
    answer, *beside = model.outputs
    last = operation_of(answer)
    if output == "features":
        features = last.input if last.name == "head" else answer
        return keras.Model(
            model.input, [features, *beside] if beside else features, name=model.name
        )
    if output == "logits" and ends_in_softmax(model):
        logits = keras.layers.Dense.from_config({**last.get_config(), "activation": "linear"})
        found = keras.Model(model.input, logits(last.input), name=model.name)
        logits.set_weights(last.get_weights())
        return found
    return model
