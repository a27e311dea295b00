"""Code shared by the constructors: the input, the head, and finding layers by name."""

import concurrent.futures
import difflib
import fnmatch
import random
from collections.abc import Callable, Iterable
from typing import Any

import keras

from vit_keras.layers.base import lecun_normal, xavier_uniform
from vit_keras.layers.common import check_positive, pair


def image_input(image_size, channels, input_tensor=None):
    """Returns the input `(B, H, W, C)`, or `input_tensor` if there is one.

    Args:
        image_size: Pixels, an int or (height, width); None for any size, or the tensor's.
        channels: The number of channels of the images.
        input_tensor: A Keras tensor to use as the images, or None.

    Raises:
        ValueError: If the size is invalid, or differs from the tensor's.
    """
    size = (None, None) if image_size is None else pair(image_size, "image_size")
    if input_tensor is not None:
        if image_size is not None and tuple(input_tensor.shape[1:3]) != size:
            raise ValueError(
                "`image_size` must match `input_tensor`, or be None. "
                f"Received: image_size={image_size}, and a tensor {tuple(input_tensor.shape)}"
            )
        return input_tensor
    check_positive(channels=channels)
    return keras.Input((*size, channels), name="images")


def image_source(x):
    """Returns the input of the model that computes `x`, or a list if there are several."""
    inputs = keras.utils.get_source_inputs(x)
    return inputs[0] if len(inputs) == 1 else inputs


def add_head(x, num_classes, representation_size, activation, layer, bias=0.0, name="head"):
    """Adds the optional pre-training layer `pre_logits`, and the classifier called `name`.

    The classifier starts at zero, except for its biases, which start at `bias`; None means no
    biases. It computes in the type of its variables, so mixed precision ends in float32.
    """
    if representation_size is not None:
        options = layer("pre_logits")
        kernel = lecun_normal(x.shape[-1], options["seed"])
        x = dense(x, representation_size, options, "tanh", kernel_initializer=kernel)
    if not num_classes and num_classes is not False:  # None, or 0 as in timm
        return x
    check_positive(num_classes=num_classes)
    start = keras.initializers.Constant(bias or 0.0)
    options = {"kernel_initializer": "zeros", "bias_initializer": start, "name": name}
    options |= {"use_bias": bias is not None, "dtype": variable_dtype(layer.dtype)}
    return keras.layers.Dense(num_classes, activation, **options)(x)


def with_kernel(options: dict[str, Any], fan_in: int, fan_out: int) -> dict[str, Any]:
    """A layer's arguments with a Xavier uniform initializer for its kernel instead of a seed."""
    seed = options.pop("seed")
    return {**options, "kernel_initializer": xavier_uniform(fan_in, fan_out, seed)}


def dense(x, units: int, options: dict[str, Any], activation=None, **changes):
    """Adds a dense layer; its kernel starts Xavier uniform unless `changes` say otherwise."""
    options = with_kernel(options, x.shape[-1], units) | changes
    return keras.layers.Dense(units, activation, **options)(x)


def variable_dtype(dtype) -> str:
    """The type of the variables under a layer's dtype policy, in which heads compute."""
    return keras.dtype_policies.get(dtype or keras.config.dtype_policy()).variable_dtype


def matching_layers(model: keras.Model, patterns: Iterable[str], argument: str) -> list:
    """The layers with weights whose names match one of the patterns.

    Args:
        model: The model.
        patterns: Names of layers. `*`, `?` and `[!h]` work as in `fnmatch`.
        argument: The name of the patterns in a message.

    Raises:
        ValueError: If a pattern matches no layer with weights.
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


def build_without_values(build: Callable[[], keras.Model]) -> keras.Model:
    """Calls `build` so that its model's weights have shapes but no values.

    This call affects neither the names that Keras gives next nor the seeds that it draws next.

    Args:
        build: A function without arguments that returns a model.

    Returns:
        The model, whose weights use no memory and which cannot compute outputs.
    """

    def without_values():
        with keras.StatelessScope(initialize_variables=False):
            return build()

    # Keras keeps a list of variables without values for each thread, and gives them values at the
    # end of the thread's next stateless scope. This thread ends here and has no next scope.
    state = random.getstate()  # Keras draws the seeds of layers from it
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(without_values).result()
    finally:
        random.setstate(state)
