"""What the models share: their input, the arguments of their layers and their head."""

import keras

from vit_keras.initializers import fold_in, lecun_normal
from vit_keras.layers.base import check_positive, pair


def layer_options(seed, dtype, name):
    """The arguments that the layer called `name` shares with all others."""
    return {"seed": fold_in(seed, name), "dtype": dtype, "name": name}


def image_input(image_size, channels):
    """New images `(B, H, W, C)`; `image_size` is an int or (height, width)."""
    return keras.Input((*pair(image_size, "image_size"), channels), name="images")


def image_source(x):
    """The model's input or inputs that `x` is computed from."""
    inputs = keras.utils.get_source_inputs(x)
    return inputs[0] if len(inputs) == 1 else inputs


def add_head(x, num_classes, representation_size, activation, part, bias=0.0):
    """The paper's pre-training head, or its fine-tuning head: one layer that starts at zero.

    `bias` is what all its biases start from.

    `head` computes in the type of its variables, so that mixed precision ends in float32.
    """
    if representation_size is not None:
        shared = part("pre_logits")
        kernel = lecun_normal(x.shape[-1], shared.pop("seed"))
        dense = keras.layers.Dense(
            representation_size, activation="tanh", kernel_initializer=kernel, **shared
        )
        x = dense(x)
    if num_classes is None:
        return x
    check_positive(num_classes=num_classes)
    policy = keras.dtype_policies.get(part("head")["dtype"] or keras.config.dtype_policy())
    return keras.layers.Dense(
        num_classes,
        activation=activation,
        kernel_initializer="zeros",
        bias_initializer=keras.initializers.Constant(bias),
        dtype=policy.variable_dtype,
        name="head",
    )(x)
