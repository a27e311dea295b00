"""Whether what a model is compiled with reads what the model gives: logits, or probabilities.

Keras does not ask. A loss that reads logits as probabilities trains to NaN or not at all, and a
metric with a threshold of 0.5 counts a probability of 0.6 as a no.
"""

import keras

from vit_keras.support.keras_internals import operation_of

# The losses and metrics of Keras that read probabilities, by the argument with which they read
# logits instead. F-scores without a threshold take the largest output.
READERS = {
    "from_logits=True": "BinaryCrossentropy CategoricalCrossentropy SparseCategoricalCrossentropy "
    "BinaryFocalCrossentropy CategoricalFocalCrossentropy AUC",
    "threshold=0.0": "BinaryAccuracy BinaryIoU",
    "thresholds=0.0": "Precision Recall TruePositives TrueNegatives FalsePositives FalseNegatives",
    "threshold=": "F1Score FBetaScore",
    "": "KLDivergence CategoricalGeneralizedCrossEntropy Dice Tversky PrecisionAtRecall "
    "RecallAtPrecision SensitivityAtSpecificity SpecificityAtSensitivity",
}
ARGUMENTS = {name: argument for argument, names in READERS.items() for name in names.split()}
NAMES = {name.lower(): name for name in ARGUMENTS}  # without the underscores of other spellings
NAMES |= {"bce": "BinaryCrossentropy", "kld": "KLDivergence"}
NAMES |= dict.fromkeys(("crossentropy", "ce"), "CategoricalCrossentropy")
OF_SOFTMAX = ("Categorical", "KL", "Dice", "Tversky")  # parts of names
OF_LOGITS = ("PixelCrossentropy", "RareClassCrossentropy", "SigmoidCrossentropy")  # of this package
# TensorFlow finds the logits before a softmax or sigmoid by itself, for these.
UNWRAPPED = READERS["from_logits=True"].split()[:3]
PROBABILITIES = {"softmax", "sigmoid", "hard_sigmoid", "sparse_sigmoid", "sparsemax"}
PACKAGES = ("keras.", "vit_keras.")


def check_compile(
    model,
    optimizer=None,
    loss=None,
    loss_weights=None,
    metrics=None,
    weighted_metrics=None,
    *_,
    **__,
) -> None:
    """Checks that losses and metrics read what the model gives.

    What a layer or a loss of another package means is not judged.

    Args:
        model: A functional model.
        optimizer: As `keras.Model.compile` takes it, as the others.
        loss: As `optimizer`.
        loss_weights: As `optimizer`.
        metrics: As `optimizer`.
        weighted_metrics: As `optimizer`.

    Raises:
        ValueError: The model gives logits and one of them reads probabilities, or the reverse.
    """
    outputs = getattr(model, "outputs", None) or []
    kinds = {_gives(output) for output in outputs}
    arguments = {"loss": loss, "metrics": metrics, "weighted_metrics": weighted_metrics}
    compiled = [(k, one) for k in arguments for one in keras.tree.flatten(arguments[k]) if outputs]
    for argument, one in compiled:
        name, config = _described(one, outputs)
        reads, gives = _reads(name, config), "logits" if kinds == {"logits"} else "probabilities"
        if reads in (None, gives) or not (gives == "logits" or kinds <= PROBABILITIES):
            continue
        remedy = "Build the model with `classifier_activation=None`"
        if gives == "logits":
            remedy = _remedies(argument, name, outputs[0])
        raise ValueError(
            f"`{argument}` must read {gives}, which model {model.name!r} gives. Received: "
            f"{repr(one) if isinstance(one, str) else name}, which reads {reads}. {remedy}"
        )


def _described(one, outputs) -> tuple[str, dict]:
    """The name of a loss or metric, as in `ARGUMENTS`, and its arguments; "" for a stranger's."""
    if isinstance(one, str):
        is_binary = one.lower() in ("accuracy", "acc") and outputs[0].shape[-1] == 1
        return NAMES.get(one.replace("_", "").lower(), "BinaryAccuracy" if is_binary else ""), {}
    function = getattr(one, "func", one)  # of a partial
    kind = function if hasattr(function, "__name__") else type(function)
    if not str(kind.__module__).startswith(PACKAGES):
        return "", {}
    config = getattr(one, "keywords", {}) if kind is function else one.get_config()
    return NAMES.get(kind.__name__.replace("_", "").lower(), kind.__name__), config


def _reads(name, config) -> str | None:
    """Whether a loss or metric reads "logits" or "probabilities"; None for anything else."""
    if name in OF_LOGITS or name not in ARGUMENTS:
        return "logits" if name in OF_LOGITS else None
    if config.get("from_logits"):
        unwraps = keras.backend.backend() == "tensorflow" and name in UNWRAPPED
        return None if unwraps else "logits"
    argument, _, for_logits = ARGUMENTS[name].partition("=")
    if not argument.startswith("threshold"):
        return "probabilities"
    thresholds = config.get(argument)
    if thresholds is None and for_logits and not config.get("top_k"):
        thresholds = 0.5
    return "probabilities" if any(0 < x < 1 for x in keras.tree.flatten(thresholds) if x) else None


def _gives(tensor) -> str:
    """What a tensor holds: "logits", the activation of its probabilities, or another name."""
    operation = operation_of(tensor)
    last = getattr(operation, "activation", None) or operation
    name = getattr(last, "__name__", type(last).__name__).lower()
    if name in PROBABILITIES or not str(last.__module__).startswith(PACKAGES):
        return name
    is_model = isinstance(operation, keras.Model)
    if name == "inputlayer" or (getattr(operation, "weights", ()) and not is_model):
        return "logits"
    before = keras.tree.flatten(operation.outputs if is_model else operation.input)
    return max(map(_gives, before), key=lambda gives: gives != "logits")


def _remedies(argument, name, tensor) -> str:
    """What to do about a loss or metric that reads probabilities where there are logits."""
    head = operation_of(tensor)
    activation = "softmax" if any(part in name for part in OF_SOFTMAX) else "sigmoid"
    remedy = f'Build the model with `classifier_activation="{activation}"`'
    from_texts = head.name == "head" and operation_of(head.input).name == "unit_length"
    if head.name != "head" or len(tensor.shape) != 2 or from_texts:  # without this argument
        layer = f'keras.layers.Activation("{activation}")(model.output)'
        remedy = f"Compile `keras.Model(model.input, {layer})` instead"
    if ARGUMENTS[name] in ("", "threshold="):
        return remedy
    room = "metrics" if argument != "loss" and hasattr(keras.metrics, name) else "losses"
    return f"{remedy}, or pass `keras.{room}.{name}({ARGUMENTS[name]})`"
