"""What labels and numbers show of a data set, beside the numbers of pictures."""

from collections.abc import Callable
from typing import Any

import numpy as np

from vit_keras.data.dataset import Dataset
from vit_keras.data.review import Review, listed
from vit_keras.data.splits import Split

UNKNOWN = 0.5  # a share of unknown values that is worth a warning


def review_labels(review: Review, dataset: Dataset, splits: dict[str, Split]) -> None:
    """Adds what the labels of a data set show.

    Args:
        review: Is added to: the kind of the labels, the pictures of each split, and for labels and
            numbers, what is known of them.
        dataset: The data set.
        splits: Its splits, training images first.

    Example:
        ```python
        review = data.Review()
        dataset = data.load("table:ages.csv", channels=3)
        data.review_labels(review, dataset, dataset.splits)
        review.facts["numbers"]["train"]["age"]  # {"known": 600, "min": 18.0, ...}
        ```
    """
    review.facts["kind"] = dataset.kind
    review.facts["images"] = {name: len(split) for name, split in splits.items()}
    if dataset.kind in KINDS:
        labels = {name: split.labels for name, split in splits.items()}
        review.facts[dataset.kind] = {
            name: KINDS[dataset.kind](values, dataset.class_names)
            for name, values in labels.items()
        }
        _warn_of_unknown(review, next(iter(labels.values())), dataset)


def _warn_of_unknown(review, labels, dataset):
    unknown = np.isnan(labels).mean(axis=0)
    if mostly := [name for name, u in zip(dataset.class_names, unknown) if u > UNKNOWN]:
        review.warnings.append(
            f"{dataset.kind} that are unknown of more than half of the training pictures: "
            f"{listed(mostly)}. They are learned from the others alone"
        )
    if dataset.kind == "numbers":
        spread = np.nanmax(labels, axis=0) - np.nanmin(labels, axis=0)
        if same := [name for name, s in zip(dataset.class_names, spread) if not s > 0]:
            review.warnings.append(
                f"numbers that are the same for all training pictures: {listed(same)}. Leave "
                "them out"
            )


def _describe_labels(labels, names):
    known = ~np.isnan(labels)
    return {
        "with_none": int((np.nansum(labels, axis=1) == 0).sum()),
        "mean_per_picture": round(float(np.nansum(labels) / max(len(labels), 1)), 3),
        "unknown": dict(zip(names, (~known).sum(axis=0).tolist())),
    }


def _describe_numbers(labels, names):
    rows = {}
    for name, values in zip(names, labels.T):
        values = values[~np.isnan(values)].astype("float64")
        figures = (np.min, np.median, np.max, np.std) if len(values) else ()
        rows[name] = {
            "known": len(values),
            **{f.__name__: round(float(f(values)), 6) for f in figures},
        }
    return rows


KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "labels": _describe_labels,
    "numbers": _describe_numbers,
}
