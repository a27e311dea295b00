"""Whether what a model is compiled with reads what the model gives: logits, or probabilities.

Keras does not ask. A loss that reads logits as probabilities trains to NaN or not at all, and a
metric with a threshold of 0.5 counts a probability of 0.6 as a no.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import keras

from vit_keras.keras_internals import operation_of

# For each loss and metric of Keras that reads probabilities: what gives them, the argument that
# says what it reads, and the value with which it reads logits. Thresholds are 0.5 by default, but
# for F-scores, which take the largest output.
ROWS: dict[str, tuple[str, str | None, Any]] = {
    "AUC": ("sigmoid", "from_logits", True),
    "BinaryAccuracy": ("sigmoid", "threshold", 0.0),
    "BinaryCrossentropy": ("sigmoid", "from_logits", True),
    "BinaryFocalCrossentropy": ("sigmoid", "from_logits", True),
    "BinaryIoU": ("sigmoid", "threshold", 0.0),
    "CategoricalCrossentropy": ("softmax", "from_logits", True),
    "CategoricalFocalCrossentropy": ("softmax", "from_logits", True),
    "CategoricalGeneralizedCrossEntropy": ("softmax", None, None),
    "Dice": ("softmax", None, None),
    "F1Score": ("sigmoid", "threshold", None),
    "FBetaScore": ("sigmoid", "threshold", None),
    "FalseNegatives": ("sigmoid", "thresholds", 0.0),
    "FalsePositives": ("sigmoid", "thresholds", 0.0),
    "KLDivergence": ("softmax", None, None),
    "Precision": ("sigmoid", "thresholds", 0.0),
    "PrecisionAtRecall": ("sigmoid", None, None),
    "Recall": ("sigmoid", "thresholds", 0.0),
    "RecallAtPrecision": ("sigmoid", None, None),
    "SensitivityAtSpecificity": ("sigmoid", None, None),
    "SparseCategoricalCrossentropy": ("softmax", "from_logits", True),
    "SpecificityAtSensitivity": ("sigmoid", None, None),
    "TrueNegatives": ("sigmoid", "thresholds", 0.0),
    "TruePositives": ("sigmoid", "thresholds", 0.0),
    "Tversky": ("softmax", None, None),
}
ALIASES = {"bce": "BinaryCrossentropy", "kld": "KLDivergence"}
ALIASES |= {name.lower(): name for name in ROWS}  # without the underscores of other spellings
# TensorFlow finds the logits of a softmax or sigmoid by itself, for these.
UNWRAPPED = ("BinaryCrossentropy", "CategoricalCrossentropy", "SparseCategoricalCrossentropy")
OF_LOGITS = ("PixelCrossentropy", "RareClassCrossentropy", "SigmoidCrossentropy")  # of this package
# What Keras takes these for, with one output and with several.
BY_SIZE = {
    **dict.fromkeys(("accuracy", "acc"), ("BinaryAccuracy", "CategoricalAccuracy")),
    **dict.fromkeys(("crossentropy", "ce"), ("BinaryCrossentropy", "CategoricalCrossentropy")),
}
PROBABILITIES = ("softmax", "sigmoid", "hard_sigmoid", "sparse_sigmoid", "sparsemax")
UNIT = "unit_length"  # the layer before a head that was made from texts
OURS = ("keras.", "vit_keras.")


def check_compile(model: keras.Model, **compiled) -> None:
    """Checks that losses and metrics read what the model gives.

    Args:
        model: A functional model. What a layer of another package puts out is not judged.
        **compiled: `loss`, `metrics` and `weighted_metrics`, as `keras.Model.compile` takes them.

    Raises:
        ValueError: The model gives logits and one of them reads probabilities, or the reverse.
    """
    outputs = dict(zip(getattr(model, "output_names", ()), getattr(model, "outputs", ())))
    for argument, given in compiled.items() if outputs else ():
        for one, tensors in _each(given, outputs):
            name, config = _described(one, tensors[0].shape)
            found = {_gives(tensor) for tensor in tensors}
            reads = _reads(name, config)
            if reads == "probabilities" and found == {"logits"}:
                remedy = _remedies(argument, name, tensors[0])
            elif reads == "logits" and not found & {"logits", None}:
                remedy = "Build the model with `classifier_activation=None`"
                remedy += ", or leave `from_logits` out" if name in ROWS else ""
            else:
                continue
            gives = "logits" if reads == "probabilities" else "probabilities"
            raise ValueError(
                f"`{argument}` must read {gives}, which model {model.name!r} gives. Received: "
                f"{_shown(one, name, config)}, which reads {reads}. {remedy}"
            )


def _each(given, outputs) -> Iterator[tuple[Any, list[keras.KerasTensor]]]:
    """Yields each loss or metric of a nested structure, and the outputs that it may read."""
    if isinstance(given, Mapping) and "class_name" not in given:
        for key, one in given.items():
            yield from _each(one, {key: outputs[key]} if key in outputs else outputs)
    elif isinstance(given, (list, tuple)):
        parts: list[dict] = [{key: tensor} for key, tensor in outputs.items()]
        for one, part in zip(given, parts if len(given) == len(parts) else [outputs] * len(given)):
            yield from _each(one, part)
    elif given is not None:
        yield given, list(outputs.values())


def _described(one, shape) -> tuple[str, dict]:
    """The name of a loss or metric, as in `ROWS`, and its arguments; "" if it is not Keras'."""
    config: dict = {}
    if isinstance(one, str):
        name = BY_SIZE.get(one.lower(), (one, one))[shape[-1] != 1]
    elif isinstance(one, Mapping):
        name, config = one["class_name"], one.get("config") or {}
    elif isinstance(one, (keras.losses.Loss, keras.metrics.Metric)):
        if not type(one).__module__.startswith(OURS):
            return "", {}
        name, config = type(one).__name__, one.get_config()
        if isinstance(config.get("fn"), Mapping):  # a wrapped function
            name = str(config["fn"]["config"])
    else:
        function, config = getattr(one, "func", one), getattr(one, "keywords", {})  # of a partial
        is_keras = getattr(function, "__module__", "").startswith("keras.")
        name = function.__name__ if is_keras else ""
    return ALIASES.get(name.replace("_", "").lower(), name), config


def _reads(name, config) -> str | None:
    """Whether a loss or metric reads "logits", "probabilities", or either."""
    if name in OF_LOGITS:
        return "logits"
    if name not in ROWS:
        return None
    _, argument, for_logits = ROWS[name]
    if config.get("from_logits"):
        unwraps = keras.backend.backend() == "tensorflow" and name in UNWRAPPED
        return None if unwraps else "logits"
    if argument in (None, "from_logits"):
        return "probabilities"
    thresholds = config.get(argument)
    if thresholds is None:
        thresholds = None if for_logits is None or config.get("top_k") else 0.5
    return "probabilities" if any(0 < x < 1 for x in keras.tree.flatten(thresholds) if x) else None


def _gives(tensor) -> str | None:
    """What a tensor holds: "logits", or the activation of its probabilities; None if unknown."""
    operation = operation_of(tensor)
    if isinstance(operation, keras.Model):
        return _gives(operation.outputs[0]) if getattr(operation, "outputs", None) else None
    last = getattr(operation, "activation", None) or operation
    name = getattr(last, "__name__", type(last).__name__).lower()
    if name in PROBABILITIES:
        return name
    if not (getattr(last, "__module__", "").startswith(OURS)):
        return None
    if getattr(operation, "weights", ()) or isinstance(operation, keras.layers.InputLayer):
        return "logits"
    found = {_gives(x) for x in keras.tree.flatten(operation.input)}
    return next(iter(found - {"logits"}), "logits")


def _remedies(argument, name, tensor):
    activation, option, for_logits = ROWS[name]
    head = operation_of(tensor)
    if head.name == "head" and len(tensor.shape) == 2 and operation_of(head.input).name != UNIT:
        remedy = f'Build the model with `classifier_activation="{activation}"`'
    else:
        layer = f'keras.layers.Activation("{activation}")(model.output)'
        remedy = f"Compile `keras.Model(model.input, {layer})` instead"
    if for_logits is None:
        return remedy
    room = "metrics" if argument != "loss" and hasattr(keras.metrics, name) else "losses"
    return f"{remedy}, or pass `keras.{room}.{name}({option}={for_logits})`"


def _shown(one, name, config):
    """A loss or metric in a message."""
    option = ROWS.get(name, ("", None, None))[1]
    if isinstance(one, str) or option not in config:
        return repr(one) if isinstance(one, str) else name
    return f"{name}({option}={config[option]})"
