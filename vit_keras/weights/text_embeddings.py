"""Embeddings of class names: their file, and the text tower that makes them."""

import contextlib
import dataclasses
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from vit_keras.layers.base import check_choice
from vit_keras.models.zero_shot import TASKS, head_from_text
from vit_keras.support.annotated import check_types, short
from vit_keras.support.files import replacing
from vit_keras.support.tasks import check_class_names
from vit_keras.weights.containers.archives import NpzTensors
from vit_keras.weights.containers.checks import fits, named_errors
from vit_keras.weights.text_towers import text_tower
from vit_keras.weights.tokenizer import TextTokenizer

PLACE = "{}"  # the place of a label in a template
BATCH = 64  # texts per pass
FIELDS = ("labels", "embeddings", "scale", "bias", "kind", "model")


@dataclasses.dataclass(frozen=True)
class TextEmbeddings:
    """The embeddings of K class names, as written by `vit-keras labels`.

    Attributes:
        labels: The K names.
        embeddings: `(K, E)`, of length 1.
        scale: The factor of the cosines of images and texts.
        bias: The number added to each product.
        kind: "softmax" if one name fits an image, or "sigmoid" if any number of them may.
        model: The model whose text tower made them, for messages.

    Raises:
        ValueError: A field has the wrong form.

    Example:
        >>> made = TextEmbeddings(("cat", "dog"), np.eye(2), scale=100.0)
        >>> made.kind
        'softmax'
    """

    labels: tuple[str, ...]
    embeddings: np.ndarray
    scale: float
    bias: float = 0.0
    kind: str = "softmax"
    model: str = ""

    def __post_init__(self):
        check_choice(self.kind, TASKS, "kind")
        if self.embeddings.ndim != 2 or self.embeddings.dtype.kind != "f":
            raise ValueError(
                "`embeddings` must be floating-point of shape (K, E). Received: "
                f"{self.embeddings.dtype} of shape {self.embeddings.shape}"
            )
        check_types(self)
        if not fits(self.embeddings, "float32"):
            raise ValueError(
                "`embeddings` must be finite as float32. Received: NaN, infinity or larger numbers"
            )
        check_class_names(self.labels, len(self.embeddings))


def write_text_embeddings(path: str | os.PathLike, texts: TextEmbeddings) -> None:
    """Writes embeddings of class names.

    Args:
        path: The file, which ends in `.npz`. Its arrays are the fields of `TextEmbeddings`.
        texts: The embeddings.

    Raises:
        ValueError: The path has the wrong suffix.

    Example:
        ```python
        texts = weights.TextEmbeddings(("cat", "dog"), embeddings, scale=100.0)
        weights.write_text_embeddings("embeddings.npz", texts)
        ```
    """
    if not os.fspath(path).endswith(".npz"):
        raise ValueError(f"Embeddings of texts go into an .npz file. Received: {os.fspath(path)!r}")
    arrays: dict[str, Any] = {name: np.asarray(getattr(texts, name)) for name in FIELDS}
    arrays["embeddings"] = arrays["embeddings"].astype("float32")
    with replacing(path) as temporary:
        np.savez(temporary, **arrays)


def read_text_embeddings(path: str | os.PathLike) -> TextEmbeddings:
    """Reads embeddings of class names.

    Args:
        path: A file from `write_text_embeddings` or other code. It must have the arrays `labels` (K
            texts), `embeddings` `(K, E)` and `scale`; `bias`, `kind` and `model` are optional.

    Returns:
        A `TextEmbeddings`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is not such an archive, or an array has the wrong form.

    Example:
        ```python
        texts = weights.read_text_embeddings("embeddings.npz")
        ```
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no file of embeddings at {os.fspath(path)!r}.")
    with contextlib.closing(NpzTensors(os.fspath(path))) as file:
        arrays = {name: file.raw(name) for name in FIELDS if name in file.shapes}
    missing = [name for name in ("labels", "embeddings", "scale") if name not in arrays]
    if missing:
        raise ValueError(
            f"{os.fspath(path)!r} must hold the arrays labels, embeddings and scale. Received: no "
            f"{' and no '.join(missing)}. `vit-keras labels` makes such a file"
        )
    with named_errors(path):
        fields = {name: arrays[name].item() for name in FIELDS[2:] if name in arrays}
        labels = tuple(map(str, np.atleast_1d(arrays["labels"])))
        return TextEmbeddings(labels, arrays["embeddings"], **fields)


def with_text_head(
    model: keras.Model,
    path: str | os.PathLike,
    names: Sequence[str] | None = None,
    **adapter: Any,
) -> keras.Model:
    """Makes a classifier from an image tower and a file of embeddings.

    Args:
        model: The image tower, as in `models.head_from_text`.
        path: The file, as in `read_text_embeddings`.
        names: The labels to take from the file, in the order of the outputs; None for all.
        **adapter: `adapter_dim` and `seed`, as in `models.head_from_text`.

    Returns:
        The classifier.

    Raises:
        FileNotFoundError, ValueError: As in these two functions; messages name the model that made
            the embeddings. Or the file lacks a name.

    Example:
        ```python
        tower = weights.open("clip-vit-base-patch32/")
        classifier = weights.with_text_head(tower, "embeddings.npz")
        ```
    """
    texts = read_text_embeddings(path)
    names = texts.labels if names is None else names
    if missing := [name for name in names if name not in texts.labels]:
        raise ValueError(
            f"The labels in {os.fspath(path)!r} must hold all names of the classes. Received: "
            f"{short(list(texts.labels))}, without {short(missing)}"
        )
    embeddings = texts.embeddings[[texts.labels.index(name) for name in names]]
    values = texts.scale, texts.bias, names, texts.kind
    try:
        return head_from_text(model, embeddings, *values, **adapter)
    except ValueError as error:
        made_by = f", of {texts.model!r}" if texts.model else ""
        raise ValueError(f"{os.fspath(path)!r}{made_by}: {error}") from error


def embed_labels(
    folder: str | os.PathLike, labels: Sequence[str], templates: Sequence[str] = (PLACE,)
) -> TextEmbeddings:
    """Embeds class names with the text tower of a CLIP or SigLIP model.

    Each name is put into each template. The embeddings of a name's texts are normalized and
    averaged, as in CLIP (arXiv 2103.00020, Section 3.1.4).

    Args:
        folder: A folder of transformers or OpenCLIP with both towers and the tokenizer, as in
            `TextTokenizer`.
        labels: The names.
        templates: Texts in which `{}` stands for the name.

    Returns:
        A `TextEmbeddings`.

    Raises:
        FileNotFoundError: There is no such folder, or no `tokenizer.json` in it.
        ValueError: There are no names, a template has no `{}`, or the folder has no text tower.
        ImportError: The package tokenizers is not installed.

    Example:
        ```python
        texts = weights.embed_labels("clip-vit-base-patch32/", ["cat", "dog"], ["a photo of a {}"])
        ```
    """
    folder = os.fspath(folder)
    if not labels:
        raise ValueError("There must be at least one label. Received: none")
    if not templates or any(PLACE not in template for template in templates):
        raise ValueError(
            f"`templates` must be texts in which {PLACE} stands for the label. "
            f"Received: {list(templates)}"
        )
    text, logits = text_tower(folder, attention_mask=True)
    tokenize = TextTokenizer(folder, text.get_layer("text_embedding").sizes["context_length"])
    ids, mask = tokenize([t.replace(PLACE, label) for label in labels for t in templates])
    inputs = [ids, np.ones_like(mask) if tokenize.full else mask]
    embedded = text.predict(inputs, batch_size=BATCH, verbose=0).astype("float64")
    embedded = embedded.reshape(len(labels), len(templates), -1)  # (K, templates, E)
    return TextEmbeddings(
        tuple(labels),
        _unit(_unit(embedded).mean(axis=1)).astype("float32"),
        math.exp(logits["logit_scale"]),
        logits.get("logit_bias", 0.0),
        kind="sigmoid" if "logit_bias" in logits else "softmax",
        model=pathlib.Path(folder).resolve().name,
    )


def _unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)
