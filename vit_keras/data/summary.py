"""What a run begins with, in a line or two: no picture is opened."""

from vit_keras.data.dataset import Dataset
from vit_keras.data.label_kinds import LABEL_KINDS
from vit_keras.data.splits import Split
from vit_keras.tasks import KINDS


def count_classes(dataset: Dataset, splits: dict[str, Split]) -> dict[str, dict[str, int]]:
    """Returns the number of pictures by split and class.

    Example:
        >>> dataset = data.load("digits", channels=1)
        >>> count_classes(dataset, dataset.splits)["test"]["7"]
        36
    """
    count = LABEL_KINDS[dataset.kind].counts
    return {name: count(split.labels, dataset.class_names) for name, split in splits.items()}


def describe_splits(dataset: Dataset, train: Split, test: Split) -> list[str]:
    """Describes the pictures and classes of a run.

    Args:
        dataset: The data set.
        train: The images that the run trains on.
        test: The images that it is judged on.

    Returns:
        A line with the numbers of pictures and classes, the held-out share, and the smallest and
        the largest class; and a line that says how the images were held out, if that was chosen
        here. Classes whose sizes are not known without reading the images are left out, and so
        are pictures without labels.
    """
    share = len(test) / (len(train) + len(test))
    kind, count = KINDS[dataset.kind], len(dataset.class_names)
    outputs = (
        f"of {count} {kind.one if count == 1 else kind.several}" if count else "without labels"
    )
    line = (
        f"{dataset.name}: {len(train):,} pictures {outputs}, and {len(test):,} ({share:.1%}) held "
        "out"
    )
    if train.labels_are_known and count:
        (counts,) = count_classes(dataset, {"train": train}).values()
        least, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        if counts[least] == counts[most]:
            line += f"; each {kind.one} has {counts[most]:,}"
        else:
            line += f"; a {kind.one} has {counts[least]:,} ({least}) to {counts[most]:,} ({most})"
    return [line] + ([dataset.held_out_by] if dataset.held_out_by else [])
