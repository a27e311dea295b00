"""What each kind of label is in the data: how it is counted, held out, and turned into a target."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from vit_keras.tasks import VOID, Task


class LabelKind(NamedTuple):
    """How the labels of a split are used.

    Attributes:
        counts: Maps labels and the names of the outputs to numbers of pictures by name.
        strata: Maps labels to one value for each picture; each value is drawn equally often where
            sampling is balanced.
        members: Maps labels to the numbers of pictures and, beside each, of a label that it has; a
            share of each label is held out.
        target: Maps one picture's label to what a model learns from, `(K,)` float32 or, of a mask,
            `(H, W)` int32, given a `Task` and K.
        text: Says what one picture's label is, given the names of the outputs.
        least: The least number of outputs.
        unit: What a share is held out of, for messages.
    """

    counts: Callable[[np.ndarray, Sequence[str]], dict[str, int]]
    strata: Callable[[np.ndarray], Sequence]
    members: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    target: Callable[[np.ndarray, Task, int], np.ndarray]
    text: Callable[[np.ndarray, Sequence[str]], str]
    least: int
    unit: str


def _count_classes(labels, names):
    return dict(zip(names, np.bincount(labels, minlength=len(names)).tolist()))


def _count_labels(labels, names):
    return dict(zip(names, np.nansum(labels, axis=0).astype(int).tolist()))


def _count_numbers(labels, names):
    return dict(zip(names, (~np.isnan(labels)).sum(axis=0).tolist()))


def _rarest_label(labels):
    """The rarest label that each picture has; one more than the last for pictures without any."""
    present = labels == 1
    numbers = np.where(present.any(axis=0), present.sum(axis=0), len(labels) + 1)
    rank = np.where(present, numbers, len(labels) + 2)
    return np.where(present.any(axis=1), rank.argmin(axis=1), labels.shape[1]).tolist()


def _rarer_values(labels):
    """The labels of each picture that has them or, of labels that most have, has them not."""
    yes, no = (labels == 1), (labels == 0)
    rarer = np.where(yes.sum(axis=0) <= no.sum(axis=0), yes, no)
    return np.nonzero(np.column_stack([rarer, ~rarer.any(axis=1)]))


def _standardized(label, task, outputs):
    if task.mean is None:
        return label
    mean, std = (np.asarray(values, "float32") for values in (task.mean, task.std))
    return (label - mean) / std


def _one_hot(label, task, outputs):
    target = np.zeros(outputs, "float32")
    target[label] = 1
    return target


def _name_labels(label, names):
    """ "cat, dog 30 %" of labels, some of which may be mixed."""
    shares = {name: float(share) for name, share in zip(names, label) if share >= 0.005}
    texts = [name if share > 0.995 else f"{name} {share:.0%}" for name, share in shares.items()]
    return ", ".join(texts) or "none"


def _name_numbers(label, names):
    texts = [f"{name} {value:.4g}" for name, value in zip(names, label) if not np.isnan(value)]
    return ", ".join(texts) or "none"


def _name_masks(label, names):
    """The classes in a mask `(H, W)`, or those that are 1 in `(K,)`."""
    label = np.asarray(label).astype(int)
    present = np.flatnonzero(label) if label.ndim == 1 else np.unique(label[label != VOID])
    return ", ".join(names[k] for k in present) or "none"


LABEL_KINDS = {
    "classes": LabelKind(
        counts=_count_classes,
        strata=lambda labels: labels.tolist(),
        members=lambda labels: (np.arange(len(labels)), labels),
        target=_one_hot,
        text=lambda label, names: names[int(label)],
        least=2,
        unit="each class",
    ),
    "labels": LabelKind(
        counts=_count_labels,
        strata=_rarest_label,
        members=_rarer_values,
        target=lambda label, task, outputs: label,
        text=_name_labels,
        least=1,
        unit="the pictures of each label",
    ),
    "numbers": LabelKind(
        counts=_count_numbers,
        strata=lambda labels: [0] * len(labels),
        members=lambda labels: (np.arange(len(labels)), np.zeros(len(labels), int)),
        target=_standardized,
        text=_name_numbers,
        least=1,
        unit="the pictures",
    ),
    "masks": LabelKind(
        counts=_count_labels,
        strata=_rarest_label,
        members=_rarer_values,
        target=lambda label, task, outputs: label.astype("int32"),
        text=_name_masks,
        least=2,
        unit="the pictures",
    ),
}
