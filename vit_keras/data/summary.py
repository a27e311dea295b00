"""What a run begins with, in a line or two: no picture is opened."""

import numpy as np

from vit_keras.data.dataset import Dataset
from vit_keras.data.splits import Split


def count_classes(dataset: Dataset, splits: dict[str, Split]) -> dict[str, dict[str, int]]:
    """Returns the number of pictures by split and class.

    Example:
        >>> dataset = data.load("digits", channels=1)
        >>> count_classes(dataset, dataset.splits)["test"]["7"]
        36
    """
    return {
        name: dict(
            zip(
                dataset.class_names,
                np.bincount(split.labels, minlength=len(dataset.class_names)).tolist(),
            )
        )
        for name, split in splits.items()
    }


def describe_splits(dataset: Dataset, train: Split, test: Split) -> list[str]:
    """Describes the pictures and classes of a run.

    Args:
        dataset: The data set.
        train: The images that the run trains on.
        test: The images that it is judged on.

    Returns:
        A line with the numbers of pictures and classes, the held-out share, and the smallest and
        the largest class; and a line that says how the images were held out, if that was chosen
        here. Classes whose sizes are not known without reading the images are left out.
    """
    share = len(test) / (len(train) + len(test))
    line = (
        f"{dataset.name}: {len(train):,} pictures of {len(dataset.class_names)} classes, and "
        f"{len(test):,} ({share:.1%}) held out"
    )
    if train.labels_are_known:
        (counts,) = count_classes(dataset, {"train": train}).values()
        least, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        if counts[least] == counts[most]:
            line += f"; each class has {counts[most]:,}"
        else:
            line += f"; a class has {counts[least]:,} ({least}) to {counts[most]:,} ({most})"
    return [line] + ([dataset.held_out_by] if dataset.held_out_by else [])
