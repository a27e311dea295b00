"""Published checkpoints: the location, contents and accuracy of each, from `published.csv`.

The names of weights describe their training:

- `imagenet21k`: pre-trained on ImageNet-21k, with its 21,843 classes;
- `imagenet`: the same, fine-tuned on ImageNet, with its 1000 classes;
- `imagenet1k`: trained only on ImageNet;
- a number at the end: the resolution, if there are several;
- `augreg-`: the files that the authors of arXiv 2106.10270 recommend;
- `augreg-timm-`: files of the same study that timm serves instead;
- `sam-`: arXiv 2106.01548; `distilled-`: arXiv 2106.05237.

File names, sizes and accuracies come from the READMEs of google-research/vision_transformer and
google-research/big_transfer, from big_vision's list of names (AugReg B/8), and from timm's
default_cfgs and results. The names of SAM L/16 and L/32 are in public download scripts and in an
answer from the authors. Nobody publishes a SHA-256. The GSAM files are left out, because users
report accuracies far below the published ones.

The families' files are folders of timm and transformers on huggingface.co. Their names are timm's
tags, which describe the training data. The repositories, resolutions, classes and licenses of
timm's files come from its `default_cfgs`, and the accuracies from results/results-imagenet.csv in
its repository; transformers' files are the publishers' own uploads. DINOv3 is not in the table:
every user must accept its license on the publisher's site, so `weights=` takes a file that the user
has downloaded.
"""

import csv
import dataclasses
import difflib
import pathlib
import urllib.parse
from typing import Any

BASE_URL = "https://storage.googleapis.com"
HUGGING_FACE = "https://huggingface.co"
README = "README of google-research/vision_transformer"
BIT_README = "README of google-research/big_transfer"
TIMM = "timm's results, with its bicubic resize and crop"
COUNTS = ("resolution", "num_classes", "representation_size", "size_mib")


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """A measured accuracy.

    Attributes:
        top1: The top-1 accuracy on ImageNet in percent.
        source: The publisher of the number.
        real: The accuracy on the ReaL labels in percent, or None if it was not measured.
    """

    top1: float
    source: str
    real: float | None = None


@dataclasses.dataclass(frozen=True)
class PublishedFile:
    """A published file of weights. Unpublished values are None.

    Attributes:
        variant: The name of the variant, such as "B/16".
        weights: The name of the weights, such as "augreg-imagenet21k".
        path: The bucket, folder and file on the server or a mirror.
        resolution: The side in pixels of the images in the last training.
        num_classes: The number of classes of its head, or the width of its projection; None without
            a head.
        representation_size: The width of its `pre_logits` layer, or None without such a layer.
        size_mib: The size of the file in MiB, rounded as published.
        accuracies: The accuracies of exactly this file, not of another file of the same model.
        format: The format of the file, "google", "bit", "timm" or "huggingface".
        license: The license of the weights.
        is_projection: Whether the head is a projection to the embeddings of texts, as in CLIP.
    """

    variant: str
    weights: str
    path: str
    resolution: int
    num_classes: int | None
    representation_size: int | None
    size_mib: float | None
    accuracies: tuple[Accuracy, ...]
    format: str
    license: str
    is_projection: bool

    @property
    def host(self) -> str:
        """The server of the file."""
        return BASE_URL if self.format in ("google", "bit") else HUGGING_FACE

    @property
    def url(self) -> str:
        """The URL of the published file."""
        return f"{self.host}/{urllib.parse.quote(self.path)}"


def _rows():
    """Yields the rows of `published.csv`."""
    path = pathlib.Path(__file__).with_name("published.csv")
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            readme = BIT_README if row["format"] == "bit" else README
            measured = (
                (row.pop("readme_top1"), readme, ""),
                (row.pop("timm_top1"), TIMM, row.pop("timm_real")),
            )
            accuracies = tuple(
                Accuracy(float(top1), source, float(real) if real else None)
                for top1, source, real in measured
                if top1
            )
            counts = {name: int(row.pop(name) or 0) or None for name in COUNTS}
            fields: dict[str, Any] = {**row, **counts, "is_projection": bool(row["is_projection"])}
            yield PublishedFile(accuracies=accuracies, **fields)


PUBLISHED_FILES = {(row.variant, row.weights): row for row in _rows()}


LISTED = ("variant", "name", "image_size", "classes", "top1_percent", "source", "license", "url")


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
    near = difflib.get_close_matches(str(weights), known, n=3, cutoff=0.4)
    hint = f". Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ValueError(
        "`weights` must be None, the path of an existing file, or a published checkpoint of "
        f"variant {variant!r}: {', '.join(map(repr, known)) or 'none is published'}. "
        f"Received: weights={weights!r}{hint}"
    )
