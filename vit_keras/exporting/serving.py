"""The model as it is served: uint8 pixels in, probabilities out, all in float32."""

import keras

from vit_keras.models import ImageModel, ends_in_softmax, preprocessing_of


def in_float32(model: keras.Model) -> keras.Model:
    """The same weights with every layer in float32: phones and servers have no mixed precision."""

    def clone(layer):
        return layer.__class__.from_config({**layer.get_config(), "dtype": "float32"})

    plain = keras.models.clone_model(model, clone_function=clone)
    plain.set_weights(model.get_weights())
    return plain


def serving_model(model: keras.Model) -> keras.Model:
    """`model` behind its preprocessing: `(B, H, W, C)` uint8 -> `(B, K)` probabilities."""
    images = keras.Input(model.input_shape[1:], dtype="uint8", name="images")
    scale, offset = preprocessing_of(model).rescaling()
    x = keras.layers.Rescaling(scale, offset, dtype="float32", name="preprocessing")(images)
    x = in_float32(model)(x)
    if not ends_in_softmax(model):
        x = keras.layers.Softmax(dtype="float32", name="probabilities")(x)
    return ImageModel(images, x, name=model.name)
