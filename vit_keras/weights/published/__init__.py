"""Looks up published files by variant and name, or by a local file."""

import difflib
import os
from typing import Any

from vit_keras.weights.published.table import HUGGING_FACE, PUBLISHED_FILES, PublishedFile

LISTED = ("variant", "name", "image_size", "classes", "top1_percent", "source", "license", "url")
SIZE_TOLERANCE = 0.02  # published sizes are rounded to MiB


def names(variant: str) -> list[str]:
    """Returns the names of the published weights of a variant.

    Args:
        variant: The name of the variant, such as "B/16".

    Returns:
        A list, which is empty if no weights are published.

    Example:
        ```python
        vit_keras.weights.names("B/8")  # ["augreg-imagenet21k", "augreg-imagenet", …]
        ```
    """
    return [weights for name, weights in PUBLISHED_FILES if name == variant]


def list_weights(variant: str | None = None) -> list[dict[str, Any]]:
    """Lists the published weights, with the accuracies published for these exact files.

    Args:
        variant: The name of a variant, such as "B/16"; None lists the weights of all variants.

    Returns:
        A list of `{"variant", "name", "image_size", "classes", "top1_percent", "source", "license",
        "url"}`. `name` is the value for a constructor's `weights=`, and for `--model.weights` along
        with `--model.variant`. `classes` is the number of outputs of the head; None without one.
        `top1_percent` is the top-1 accuracy on ImageNet; None, with "" as `source`, if nobody
        published it.

    Example:
        ```python
        best = max(vit_keras.list_weights("B/16"), key=lambda row: row["top1_percent"] or 0)
        best["name"], best["top1_percent"]  # ("augreg-timm-imagenet-384", 86.01)
        ```
    """
    rows = []
    for row in PUBLISHED_FILES.values():
        best = row.accuracies[0] if row.accuracies else None
        top1, source = (best.top1, best.source) if best else (None, "")
        facts = row.weights, row.resolution, row.num_classes, top1, source, row.license, row.url
        rows.append(dict(zip(LISTED, (row.variant, *facts))))
    return [row for row in rows if variant in (None, row["variant"])]


def lookup(variant: str, weights: str) -> PublishedFile:
    """Looks up a published file in the table.

    Args:
        variant: The name of the variant, such as "B/16".
        weights: The name of the weights, one of `names(variant)`.

    Returns:
        A `PublishedFile` with its URL, resolution, number of classes and accuracies.

    Raises:
        ValueError: If there is no such file. The message lists the existing names.

    Example:
        ```python
        vit_keras.weights.lookup("B/16", "imagenet").accuracies
        ```
    """
    if (variant, weights) in PUBLISHED_FILES:
        return PUBLISHED_FILES[variant, weights]
    known = names(variant)
    if not known:
        raise ValueError(
            "`weights` must be None or the path of an existing file, because no checkpoint of "
            f"variant {variant!r} is published. Received: weights={weights!r}"
        )
    near = difflib.get_close_matches(str(weights), known, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ValueError(
        "`weights` must be None, the path of an existing file, or a published checkpoint of "
        f"variant {variant!r}: {', '.join(map(repr, known))}. Received: weights={weights!r}.{hint}"
    )


def identify(path: str, sha256: str, num_classes: int | None) -> tuple[str, list[PublishedFile]]:
    """Finds the published files that a local file may be.

    Args:
        path: The local file.
        sha256: Its SHA-256.
        num_classes: The number of classes of its head, or None without a head.

    Returns:
        How the rows were matched, and the rows. "sha256" and "path" (folder and file name, as in
        the Keras cache) identify one published file. A bare file "name" may match several; those
        with other sizes or numbers of classes are left out.
    """
    rows = list(PUBLISHED_FILES.values())
    by_hash = [row for row in rows if row.sha256 == sha256]
    if by_hash:
        return "sha256", by_hash
    local = os.path.abspath(path).replace(os.sep, "/")
    by_path = [row for row in rows if local.endswith(f"/{row.path}") and fits_size(row, path)]
    if by_path:
        return "path", by_path
    name = os.path.basename(path)
    return "name", [
        row
        for row in rows
        if row.path.rpartition("/")[2] == name
        and row.host != HUGGING_FACE  # its files all have the same names
        and row.num_classes == num_classes
        and fits_size(row, path)
    ]


def fits_size(row: PublishedFile, path: str) -> bool:
    """Whether the file at `path` has the published size, if that is known."""
    size_mib = os.path.getsize(path) / 2**20
    return row.size_mib is None or abs(size_mib / row.size_mib - 1) <= SIZE_TOLERANCE
