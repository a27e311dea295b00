"""The row of the table of published files."""

import dataclasses
import urllib.parse

BASE_URL = "https://storage.googleapis.com"
HUGGING_FACE = "https://huggingface.co"
TIMM = "timm's results, with its bicubic resize and crop"


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """A measured accuracy.

    Attributes:
        top1: Top-1 accuracy on ImageNet in percent.
        source: Who published the number.
        real: Accuracy on the ReaL labels in percent, or None if it was not measured.
    """

    top1: float
    source: str
    real: float | None = None


@dataclasses.dataclass(frozen=True)
class PublishedFile:
    """A published file of weights. None stands for what is not published.

    Attributes:
        variant: The name of the variant, such as "B/16".
        weights: The name of the weights, such as "augreg-imagenet21k".
        path: Bucket, folder and file on the server, or on a mirror of it.
        resolution: Side in pixels of the images that it was trained on last.
        num_classes: Number of classes of its head, or the width of its projection; None without a
            head.
        representation_size: Width of its `pre_logits` layer, or None without such a layer.
        size_mib: Size of the file in MiB, rounded as published.
        sha256: SHA-256 of the file.
        accuracies: Accuracies of this file, never of another file of the same model.
        format: The format of the file, "google", "bit", "timm" or "huggingface".
        license: The license of the weights.
        host: The server of the file.
        beside: The files in the same folder that describe it, and are downloaded with it.
        is_projection: Whether the head is a projection to the embeddings of texts, as in CLIP.
    """

    variant: str
    weights: str
    path: str
    resolution: int
    num_classes: int | None
    representation_size: int | None = None
    size_mib: int | float | None = None
    sha256: str | None = None
    accuracies: tuple[Accuracy, ...] = ()
    format: str = "google"
    license: str = "Apache-2.0"
    host: str = BASE_URL
    beside: tuple[str, ...] = ()
    is_projection: bool = False

    @property
    def url(self) -> str:
        """Where the file is published."""
        return f"{self.host}/{urllib.parse.quote(self.path)}"
