"""Low-rank adapters (LoRA, arXiv 2106.09685): a few weights that train in a frozen model."""

import math
from collections.abc import Sequence

import keras
import numpy as np

from vit_keras.layers import base
from vit_keras.models.common import matching_layers
from vit_keras.models.description import copy_description
from vit_keras.support.keras_internals import stored_kernel, sublayers


def add_lora(
    model: keras.Model,
    rank: int,
    layers: Sequence[str] = ("query", "value"),
    alpha: float | None = None,
    train: Sequence[str] = ("head*",),
    seed: int | None = None,
) -> keras.Model:
    """Adds low-rank adapters to the dense layers of a model's blocks, and freezes the rest.

    A kernel W becomes W + alpha / rank · A B. A starts with random numbers and B at zero, so the
    model's outputs do not change. Only the adapters and the layers in `train` are trained. Add
    adapters after loading weights and before `compile`.

    Args:
        model: A built model of this package.
        rank: The number of columns of A and of rows of B, at most the shortest side of a kernel.
        layers: The names of layers that get adapters: "query", "key", "value" and "out" of the
            attention, "Dense_0" and "Dense_1" of the MLPs, and "gate" of SwiGLU.
        alpha: The scale of the product, which makes ranks comparable; None means `rank`.
        train: The names of layers to train in full; `*` and `?` are wildcards.
        seed: The seed of A; one seed gives the same numbers on every backend. None draws one.

    Returns:
        `model`, changed in place.

    Raises:
        ValueError: If a name matches no layer, if a layer has adapters already, or if `rank` or
            `alpha` is out of range.

    Example:
        >>> add_lora(model, rank=8, layers=["query", "value"])
        >>> model.compile("adam", loss)
        >>> model.fit(images, labels)
    """
    adapted = adaptable_layers(model, layers)
    most = min(math.prod(shape) for layer in adapted for shape in base.lora_shapes(layer, 1))
    if rank > most or (alpha is not None and alpha <= 0):
        raise ValueError(
            f"`rank` must be at most {most}, the shortest side of the kernels that get adapters, "
            "and `alpha` must be above 0, or None to use `rank`. "
            f"Received: rank={rank}, alpha={alpha}"
        )
    whole = matching_layers(model, train, "train")
    seed = base.default_seed() if seed is None else seed
    for layer in adapted:
        seed_a = base.fold_in(seed, f"{layer.path}/lora_kernel_a")
        layer.enable_lora(rank, alpha, base.lora_initializer(layer, seed_a))
    trained = {id(v) for v in lora_variables(model)}
    trained |= {id(v) for layer in whole for v in layer.trainable_variables}
    for variable in model.trainable_variables:
        if id(variable) not in trained:
            variable.trainable = False
    for name in ("train_function", "test_function", "predict_function"):
        setattr(model, name, None)  # otherwise Keras would keep using its compiled functions
    return model


def merge_lora(model: keras.Model) -> keras.Model:
    """Copies a model with its adapters added to the kernels.

    Args:
        model: A model with or without adapters. It is not changed.

    Returns:
        A model without adapters that computes the same logits. It is not compiled, and its layers
        are trainable.

    Raises:
        ValueError: If a sum is too large for the type of its kernel.

    Example:
        >>> merged = merge_lora(model)
        >>> vit_keras.weights.save_model(merged, "merged.keras")
    """
    kernels = {id(stored_kernel(layer)): layer.kernel for layer in lora_layers(model)}
    adapters = {id(variable) for variable in lora_variables(model)}
    copy = lambda layer: type(layer).from_config(layer.get_config())
    merged = keras.models.clone_model(model, clone_function=copy)
    weights = [weight for weight in model.weights if id(weight) not in adapters]
    for old, new in zip(weights, merged.weights, strict=True):
        value = keras.ops.convert_to_numpy(kernels.get(id(old), old))
        if id(old) in kernels and not np.isfinite(np.array(value, "float32")).all():
            raise ValueError(
                f"Kernels merged with their adapters must be finite in {old.dtype}. "
                f"Received: {old.path}, which would not be"
            )
        new.assign(np.array(value))  # a copy: JAX would let both models share a buffer
    return copy_description(merged, model)


def lora_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers of a model that have adapters.

    Args:
        model: The model.

    Returns:
        The dense layers, in the order of the model. Each has `lora_kernel_a`, `lora_kernel_b`,
        `lora_rank` and `lora_alpha`.

    Example:
        >>> add_lora(model, rank=4)
        >>> [layer.path for layer in lora_layers(model)][0]
        'encoderblock_0/MultiHeadDotProductAttention_1/query'
    """
    return [layer for layer in _low_rank_layers(model) if layer.lora_enabled]


def lora_variables(model: keras.Model) -> list[keras.Variable]:
    """The variables of all adapters: A and B of each layer in turn."""
    return [v for layer in lora_layers(model) for v in (layer.lora_kernel_a, layer.lora_kernel_b)]


def adaptable_layers(model: keras.Model, names: Sequence[str]) -> list[keras.layers.Layer]:
    """The dense layers of a model that have one of the given names.

    Raises:
        ValueError: If a name matches none.
    """
    layers = _low_rank_layers(model)
    known = list(dict.fromkeys(layer.name for layer in layers))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(
            "`layers` must hold names of dense layers in the model's blocks. Received: "
            f"layers={list(names)} for model {model.name!r}, which has {', '.join(known) or 'none'}"
        )
    return [layer for layer in layers if layer.name in names]


def _low_rank_layers(model):
    """The adaptable layers, in the order of the model's weights."""
    layers = [layer for layer in sublayers(model) if isinstance(layer, base.LowRankKernel)]
    places = {id(weight): place for place, weight in enumerate(model.weights)}
    return sorted(layers, key=lambda layer: places[id(stored_kernel(layer))])
