"""The input, the arguments of layers and the head that all constructors share."""

import keras

from vit_keras.initializers import fold_in, lecun_normal
from vit_keras.layers.base import check_positive, pair


def layer_options(seed, dtype, name):
    """Returns the arguments that every layer takes: its seed, its dtype and its name."""
    return {"seed": fold_in(seed, name), "dtype": dtype, "name": name}


def image_input(image_size, channels):
    """Creates the input `(B, H, W, C)`; `image_size` is an int or (height, width) in pixels."""
    return keras.Input((*pair(image_size, "image_size"), channels), name="images")


def image_source(x):
    """Returns the input of the model from which `x` is computed, or a list of several."""
    inputs = keras.utils.get_source_inputs(x)
    return inputs[0] if len(inputs) == 1 else inputs


def add_head(x, num_classes, representation_size, activation, layer, bias=0.0):
    """Adds the optional pre-training layer `pre_logits`, and the classifier `head`.

    `head` starts at zero but for its biases, which start at `bias`. It computes in the type of its
    variables, so that mixed precision ends in float32.
    """
    if representation_size is not None:
        options = layer("pre_logits")
        kernel = lecun_normal(x.shape[-1], options.pop("seed"))
        dense = keras.layers.Dense(
            representation_size, activation="tanh", kernel_initializer=kernel, **options
        )
        x = dense(x)
    if num_classes is None:
        return x
    check_positive(num_classes=num_classes)
    policy = keras.dtype_policies.get(layer("head")["dtype"] or keras.config.dtype_policy())
    return keras.layers.Dense(
        num_classes,
        activation=activation,
        kernel_initializer="zeros",
        bias_initializer=keras.initializers.Constant(bias),
        dtype=policy.variable_dtype,
        name="head",
    )(x)
