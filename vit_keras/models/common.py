"""The input, the arguments of layers and the head that all constructors share; layers by name."""

import difflib
import fnmatch
from collections.abc import Iterable

import keras

from vit_keras.layers.base import check_positive, pair
from vit_keras.layers.initializers import fold_in, lecun_normal


def layer_options(seed, dtype, name):
    """Returns the arguments that every layer takes: its seed, its dtype and its name."""
    return {"seed": fold_in(seed, name), "dtype": dtype, "name": name}


def image_input(image_size, channels, input_tensor=None, any_size=False):
    """Returns the input `(B, H, W, C)`, which is `input_tensor` where there is one.

    Args:
        image_size: Pixels, an int or (height, width), or None.
        channels: Channels of the images.
        input_tensor: A Keras tensor that stands for the images, or None.
        any_size: Whether `image_size` None means images of any size.

    Raises:
        ValueError: The size is missing, is no size, or differs from the tensor's.
    """
    size = (None, None) if image_size is None else pair(image_size, "image_size")
    if input_tensor is not None:
        if image_size is not None and tuple(input_tensor.shape[1:3]) != size:
            raise ValueError(
                "`image_size` must be that of `input_tensor`, or None. "
                f"Received: image_size={image_size}, and a tensor {tuple(input_tensor.shape)}"
            )
        return input_tensor
    if image_size is None and not any_size:
        raise ValueError(
            "`image_size` must be given, as an int or (height, width): the number of patches "
            "follows from it. Received: image_size=None. "
            "`vit_keras.models.with_image_size(model, …)` makes a model for another size"
        )
    check_positive(channels=channels)
    return keras.Input((*size, channels), name="images")


def image_source(x):
    """Returns the input of the model from which `x` is computed, or a list of several."""
    inputs = keras.utils.get_source_inputs(x)
    return inputs[0] if len(inputs) == 1 else inputs


def add_head(x, num_classes, representation_size, activation, layer, bias=0.0, name="head"):
    """Adds the optional pre-training layer `pre_logits`, and the classifier called `name`.

    The classifier starts at zero but for its biases, which start at `bias`; with None it has none.
    It computes in the type
    of its variables, so that mixed precision ends in float32.
    """
    if representation_size is not None:
        check_positive(representation_size=representation_size)
        options = layer("pre_logits")
        kernel = lecun_normal(x.shape[-1], options.pop("seed"))
        dense = keras.layers.Dense(
            representation_size, activation="tanh", kernel_initializer=kernel, **options
        )
        x = dense(x)
    if not num_classes and num_classes is not False:  # None, or 0 as in timm
        return x
    check_positive(num_classes=num_classes)
    policy = keras.dtype_policies.get(layer(name)["dtype"] or keras.config.dtype_policy())
    return keras.layers.Dense(
        num_classes,
        activation=activation,
        kernel_initializer="zeros",
        use_bias=bias is not None,
        bias_initializer=keras.initializers.Constant(bias or 0.0),
        dtype=policy.variable_dtype,
        name=name,
    )(x)


def matching_layers(model: keras.Model, patterns: Iterable[str], argument: str) -> list:
    """The layers with weights whose names match one of the patterns.

    Args:
        model: The model.
        patterns: Names of layers, in which `*`, `?` and `[!h]` have the meaning of `fnmatch`.
        argument: What the patterns are called in a message.

    Raises:
        ValueError: A pattern matches no layer with weights.
    """
    layers = {layer.name: layer for layer in model.layers if layer.weights}
    matched: dict[str, keras.layers.Layer] = {}
    for pattern in patterns:
        names = fnmatch.filter(layers, pattern)
        if not names:
            near = difflib.get_close_matches(pattern, layers, n=3, cutoff=0.3) or list(layers)
            raise ValueError(
                f"`{argument}` must hold patterns that match names of layers with weights. "
                f"Received: {pattern!r}, which matches none. Similar names: {', '.join(near)}"
            )
        matched |= {name: layers[name] for name in names}
    return list(matched.values())
