"""The calls of a model's layers, and the cost rules of layers that contain models."""

import itertools
import math
from collections.abc import Iterator

import keras

from vit_keras.inspection.cost_rules import RULES, Convention, Products, count
from vit_keras.layers import PrototypeHead
from vit_keras.models.self_distillation import SelfDistillation


def layer_calls(model: keras.Model) -> Iterator[tuple[keras.layers.Layer, list[tuple]]]:
    """Yields each layer of a functional model, with the shape of the first input of each call."""
    # A shared layer also has calls outside the model, so the calls are read from the config.
    calls = {layer["name"]: layer["inbound_nodes"] for layer in model.get_config()["layers"]}
    for layer in model.operations:
        if isinstance(layer, keras.layers.InputLayer):
            continue
        yield (
            layer,
            [next(_tensor_shapes([call["args"], call["kwargs"]])) for call in calls[layer.name]],
        )


def _tensor_shapes(arguments) -> Iterator[tuple]:
    """Yields the shapes of the tensors in the serialized arguments of a call."""
    if isinstance(arguments, dict) and arguments.get("class_name") == "__keras_tensor__":
        yield tuple(arguments["config"]["shape"])
    elif isinstance(arguments, (dict, list, tuple)):
        values = arguments.values() if isinstance(arguments, dict) else arguments
        for value in values:
            yield from _tensor_shapes(value)


def _prototype_head(layer, shape, convention) -> Products:
    """Multiplies by the three kernels of the MLP, and by the prototypes."""
    positions = math.prod(shape[1:-1])
    for kernel in (*(dense.kernel for dense in layer.dense_layers), layer.kernel):
        yield positions * math.prod(kernel.shape), positions * kernel.shape[-1]


def _self_distillation(layer, shape, convention) -> Products:
    """Counts both networks on their views, and the products of all pairs of distributions."""
    teacher_views, views = layer.pairs.shape
    runs = (
        (layer.teacher, layer.teacher_head, teacher_views),
        (layer.student, layer.student_head, teacher_views),
        (layer.local_student, layer.student_head, views - teacher_views),
    )
    for model, head, times in runs:
        products = [*_model(model, convention), *count(head, model.output_shape, convention)]
        yield from ((times * macs, times * elements) for macs, elements in products)
    yield layer.pairs.size * layer.config.prototypes, layer.pairs.size


def _model(model: keras.Model, convention: Convention) -> Products:
    return itertools.chain.from_iterable(
        count(layer, shape, convention) for layer, shapes in layer_calls(model) for shape in shapes
    )


RULES |= {PrototypeHead: _prototype_head, SelfDistillation: _self_distillation}
