"""A model in two: the layers that never change, and the layers that train on their outputs."""

import keras

from vit_keras.models.description import copy_description


def split_frozen(model: keras.Model) -> tuple[keras.Model, keras.Model]:
    """Splits a model before its first layer that trains.

    Args:
        model: A functional model whose layers follow one another. Its first layers are frozen.

    Returns:
        The frozen layers, from images to features, which share the weights of `model`; and the
        other layers, from features to the output, with copies of their weights.

    Raises:
        ValueError: The first layer with weights trains, no layer trains, or the layers that train
            are not a chain.

    Example:
        ```python
        freeze(model, ["[!h]*"])
        backbone, head = models.split_frozen(model)
        head(backbone(images))  # equals model(images)
        ```
    """
    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    trains = [bool(layer.trainable_variables) for layer in layers]
    first = trains.index(True) if any(trains) else len(layers)
    if first == len(layers) or not any(layer.weights for layer in layers[:first]):
        state = "no layer trains" if first == len(layers) else f"{layers[first].name!r} trains"
        raise ValueError(
            "The first layers of the model must be frozen, and the last ones must train. "
            f"Received: model {model.name!r}, where {state}. Set optimizer.freeze, such as "
            '["[!h]*"] for all layers but the head'
        )
    frozen, others = layers[:first], layers[first:]
    for before, layer in zip(layers[first - 1 :], others):
        if not _follows(layer, before):
            raise ValueError(
                f"From the first layer that trains, each layer must follow the one before. "
                f"Received: {layer.name!r}, which does not follow {before.name!r}"
            )
    backbone = type(model)(model.input, frozen[-1].output, name=f"{model.name}_frozen")
    head = _copy(others, frozen[-1].output, model)
    return copy_description(backbone, model), copy_description(head, model)


def _follows(layer, before):
    try:
        return layer.input is before.output
    except (AttributeError, ValueError):  # a layer that is called several times
        return False


def _copy(layers, features, model):
    """Copies a chain of layers with their weights, and which of them train."""
    x = start = keras.Input(features.shape[1:], dtype=features.dtype, name="features")
    for layer in layers:
        copy = type(layer).from_config(layer.get_config())
        x = copy(x)
        copy.set_weights(layer.get_weights())
        if not layer.trainable:
            copy.trainable = False
    return type(model)(start, x, name=model.name)
