"""The meaning of a model's outputs: one row of `KINDS` for each kind; the figures of a report."""

import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from vit_keras.support.checks import check_choice, check_rules, check_types, short

if TYPE_CHECKING:
    import numpy as np


class Kind(NamedTuple):
    """A kind of label.

    Attributes:
        output: The output of an exported model: "softmax" or "sigmoid" of the logits, "values", or
            "boxes" with their scores.
        losses: The losses that a run may minimize, the default first.
        metric: The figure that selects the best weights of a run and heads its report. Higher is
            better.
        one: The name of one output.
        several: The name of several outputs.
    """

    output: str
    losses: tuple[str, ...]
    metric: str
    one: str
    several: str


KINDS = {
    "classes": Kind(
        "softmax", ("softmax", "sigmoid", "focal", "logit_adjusted"), "accuracy", "class", "classes"
    ),
    "labels": Kind("sigmoid", ("sigmoid", "focal"), "average_precision", "label", "labels"),
    "numbers": Kind("values", ("mse", "mae", "huber"), "r2", "number", "numbers"),
    "masks": Kind("softmax", ("pixels",), "miou", "class", "classes"),
    "boxes": Kind("boxes", ("set",), "ap", "class", "classes"),
}
# The kinds that a field of a `Task` belongs to.
FIELDS = {"thresholds": ("labels", "boxes"), "mean": ("numbers",), "std": ("numbers",)}
VOID = 255  # the value of a mask's pixels without a class

# The names of figures in reports, where they differ from the keys.
NAMES = {
    "top_5_accuracy": "top-5",
    "real_accuracy": "ReaL",
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "iou": "IoU",
    "miou": "mean IoU",
    "r2": "R²",
    "mae": "mean absolute error",
    "rmse": "root mean square error",
    "ece": "calibration error",
}
# The formats of figures that are neither counts nor shares.
FORMATS = {
    **dict.fromkeys(("loss", "mean", "std", "mae", "rmse", "size"), ".4g"),
    "r2": ".4f",
    "threshold": ".2g",
}


def figure_name(key: str) -> str:
    """Returns the name of a figure of a report."""
    return NAMES.get(key) or re.sub("^ap", "AP", key).replace("_", " ")


def figure_text(key: str, *values: Any) -> str:
    """Formats a figure, such as "97.50%", or a mean and its deviation; None is a dash."""
    if values == (None,) or isinstance(values[0], int):
        return "-" if values[0] is None else f"{values[0]:,}"
    factor, form, unit = (1, FORMATS[key], "") if key in FORMATS else (100, ".2f", "%")
    return " ± ".join(format(factor * value, form) for value in values) + unit


def figure_line(key: str, *values: Any) -> str:
    """Returns a figure with its name, such as "accuracy 97.50%"."""
    return f"{figure_name(key)} {figure_text(key, *values)}"


@dataclasses.dataclass(frozen=True)
class Task:
    """The meaning of a model's outputs.

    Attributes:
        kind: A key of `KINDS`: one of several "classes", any number of "labels", "numbers",
            "masks" with one of several classes for each pixel, or "boxes" around objects.
        thresholds: For each label, the probability at which it counts as present; for boxes, the
            score at which an object of each class does; None for 0.5.
        mean: One value per output: `outputs * std + mean` restores the numbers. None if the outputs
            are the numbers themselves.
        std: See `mean`.
        shares: Each class's fraction of the training images, or the fraction of images with each
            label, for losses of rare classes; None after training.
        temperature: The number that the logits were divided by after training, so that the
            probabilities match how often the model is right; None if there was none. The head's
            weights include it.
        quantiles: For each of some coverages, the coverage and the quantiles of
            `evaluation.fit_quantiles`, with which `predict` reports what else is possible; None
            without a development split.
        floors: For each of some shares, the share, and the probability below which the most
            probable class lies for this share of a development split; None without one.

    Raises:
        ValueError: If there is no such kind, or if a field belongs to another kind.

    Example:
        >>> Task("labels", thresholds=(0.5, 0.25)).row.output
        'sigmoid'
    """

    kind: str = "classes"
    thresholds: tuple[float, ...] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    shares: tuple[float, ...] | None = None
    temperature: float | None = None
    quantiles: tuple[tuple[float | None, ...], ...] | None = None
    floors: tuple[tuple[float, float], ...] | None = None

    def __post_init__(self):
        check_types(self)
        check_choice(self.kind, KINDS, "kind")
        check_rules(self, None, [("temperature", lambda n: 0 < n < 1e6, "above 0 and below 1e6")])
        for name, kinds in FIELDS.items():
            if getattr(self, name) is not None and self.kind not in kinds:
                raise ValueError(
                    f"`{name}` belongs to {' and '.join(kinds)}. Received: "
                    f"{name}={getattr(self, name)} for {self.kind}"
                )

    @property
    def row(self) -> Kind:
        return KINDS[self.kind]

    def threshold(self, index: int) -> float:
        """The probability at which label number `index` counts as present."""
        return 0.5 if self.thresholds is None else self.thresholds[index]

    def present(self, probabilities: "np.ndarray") -> "np.ndarray":
        """The labels that count as present, `(..., K)` bool: those not below their thresholds.

        Thresholds and probabilities are compared in the probabilities' type.
        """
        least = [self.threshold(k) for k in range(probabilities.shape[-1])]
        return probabilities >= probabilities.dtype.type(least)


CLASSES = Task()


def check_class_names(class_names: Sequence[str], num_classes: int) -> tuple[str, ...]:
    """Checks that there is one name for each class.

    Args:
        class_names: The names, in the order of the logits.
        num_classes: The number of classes.

    Returns:
        The names as a tuple.

    Raises:
        ValueError: If the numbers of names and classes differ, or if `class_names` is one string.

    Example:
        >>> check_class_names(["cat", "dog"], num_classes=2)
        ('cat', 'dog')
    """
    if isinstance(class_names, str) or len(class_names) != num_classes:
        raise ValueError(
            f"`class_names` must be {num_classes} names, one for each class. "
            f"Received: {short(class_names)}"
        )
    return tuple(class_names)
