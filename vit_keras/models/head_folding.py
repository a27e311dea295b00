"""Scales that are multiplied into the weights of a head, so that every format carries them."""

import keras
import numpy as np


def scale_head(model: keras.Model, scale, offset=0.0) -> keras.Model:
    """Multiplies a model's outputs by `scale` and adds `offset`, by its head's weights.

    Args:
        model: A model that ends in its linear `head`, or in the mean of `head` and `head_dist`; it
            is changed in place.
        scale: One factor, or one for each of the K outputs, `(K,)`.
        offset: One number, or one for each output.

    Returns:
        `model`.

    Raises:
        ValueError: The model does not end in a linear layer called `head`.

    Example:
        >>> logits = model.predict(images)
        >>> np.allclose(scale_head(model, 0.5).predict(images), logits / 2, atol=1e-6)
        True
    """
    last = model.layers[-1]
    heads = [last]
    if isinstance(last, keras.layers.Average):
        heads = [layer for layer in model.layers if layer.name in ("head", "head_dist")]
    linear = keras.activations.linear
    if heads[0].name != "head" or any(getattr(h, "activation", None) is not linear for h in heads):
        raise ValueError(
            "Outputs are scaled by the weights of a linear last layer `head`. "
            f"Received: model {model.name!r}, which ends in {last.name!r}"
        )
    scale = np.asarray(scale, "float64")
    for head in heads:
        kernel, bias = (keras.ops.convert_to_numpy(v) for v in (head.kernel, head.bias))
        head.kernel.assign((kernel * scale).astype(kernel.dtype))
        head.bias.assign((bias * scale + offset).astype(bias.dtype))
    return model
