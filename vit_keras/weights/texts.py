"""Texts beside images: text towers, their tokenizers, and the embeddings of class names."""

import contextlib
import dataclasses
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from vit_keras.layers.common import check_choice
from vit_keras.models import ImageText, TextTransformer, with_unit_length
from vit_keras.models.text import TASKS, head_from_text
from vit_keras.support import extras
from vit_keras.support.checks import check_annotated, check_types, read_json, short
from vit_keras.support.files import replacing
from vit_keras.support.tasks import check_class_names
from vit_keras.weights import strict_copy, weight_file
from vit_keras.weights.containers.archives import NpzTensors
from vit_keras.weights.containers.checks import fits, named_errors, readable
from vit_keras.weights.formats import text as text_formats
from vit_keras.weights.formats.open_clip import CONFIG, model_field
from vit_keras.weights.hub import local_path
from vit_keras.weights.loading import build, check_plausible

IMAGE_ENDS = {"visual_projection.weight", "head.probe"}  # of transformers' image towers


def text_file(file: weight_file.WeightFile) -> weight_file.WeightFile:
    """Returns the text tower of an open file; raises ValueError if there is none."""
    row, prefix, beside = text_formats.TEXT_FORMATS.get(file.format.name, (None, "", ""))
    image = next((name for name in file.names.values() if beside in name), "")
    root = image.partition(beside)[0] if beside else ""
    names = {
        name.removeprefix(root).removeprefix(prefix): name
        for name in file.tensors.shapes
        if name.startswith(root) and not name.startswith((f"{root}{beside}", f"{root}visual_"))
    }
    ends = file.format.name != "huggingface" or IMAGE_ENDS & file.names.keys()
    if row is None or not (ends and row.detect(set(names)) and "logit_scale" in names):
        raise ValueError(
            f"{file.path!r} must hold both towers of a CLIP or SigLIP model, with their "
            "projections and `logit_scale`, in the layout of transformers or OpenCLIP. Received: a "
            f"file in the format {file.format.name!r} that lacks some of them"
        )
    text = dataclasses.replace(file, format=row, names=names)
    text.note = {}  # the file's note is about the image tower
    return text


def text_tower(
    path: str | os.PathLike, attention_mask: bool = False, **options: str | None
) -> tuple[keras.Model, dict[str, float]]:
    """Opens the text tower of a CLIP or SigLIP model; takes the arguments of `image_text`.

    Returns:
        The `TextTransformer`, and `logit_scale` and perhaps `logit_bias` as in `ImageText`.
    """
    with weight_file.open_weight_file(path, **options) as image:
        file = text_file(image)
        with named_errors(file.path):
            check_annotated(file.arguments, TextTransformer)
            check_plausible({**file.arguments, "patch_size": (1, 1)}, file)
            model = TextTransformer(**file.arguments, attention_mask=attention_mask)
        strict_copy.copy_weights(model, file)
        logits = {name: file.read(name) for name in text_formats.LOGITS if name in file.names}
        if not all(value.size == 1 and np.isfinite(value) for value in logits.values()):
            raise ValueError(f"{file.path!r}: each logit_* must be one number. Received: {logits}")
        return model, {name: value.item() for name, value in logits.items()}


def image_text(
    path: str | os.PathLike, attention_mask: bool = False, **options: str | None
) -> ImageText:
    """Opens both towers of a CLIP, MetaCLIP 2, SigLIP or SigLIP 2 model.

    Args:
        path: A folder of transformers or OpenCLIP, or a file of OpenCLIP or OpenAI, with both
            towers; or the address of one on a hub.
        attention_mask: Whether the text tower takes masks, as in `TextTransformer`.
        **options: `source`, the name of the image tower's format, and `which`, as in `open`.

    Returns:
        An `ImageText`. `save` writes it to a folder of transformers.

    Raises:
        FileNotFoundError: There is nothing at `path`.
        ValueError: The file is damaged, or does not have two towers of these kinds; nothing is
            then loaded.
        ImportError: The file needs a package that is not installed.

    Example:
        ```python
        towers = vit_keras.image_text("clip-vit-base-patch32/")
        towers.logits(images, input_ids)  # (B, K)
        vit_keras.weights.save(towers, "copy", format="huggingface")
        ```
    """
    path = local_path(path)
    text, logits = text_tower(path, attention_mask, **options)
    image = build(path, options.get("source"), which=options.get("which"))
    folder = os.path.dirname(weight_file.locate(path))
    return ImageText(with_unit_length(image), text, folder=folder, **logits)


PADS = {"clip": "<|endoftext|>", "siglip": "</s>"}  # others pad with "<pad>"
GEMMA = ("Gemma", "Siglip2")  # begin the names of classes with the defaults of SigLIP 2
# OpenCLIP's ways to clean texts; each includes the one before it.
CLEANINGS = ("whitespace", "lower", "canonicalize")
UNREAD = ("strip_sep_token", "tokenizer_mode", "language", "reduction_mask")
PUNCTUATION = r"[!-/:-@\[-`{-~]"  # of ASCII
SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "mask_token")
TOKENIZER_FILES = ("special_tokens_map.json", "tokenizer_config.json")  # the later one counts


class TextTokenizer:
    """The tokenizer in a folder of transformers or OpenCLIP; it gives the same ids as theirs.

    Texts are padded or cut to one length. Those for SigLIP 2 are lowercased; those for OpenCLIP
    models are cleaned as `open_clip_config.json` states, but not repaired by ftfy.

    Args:
        folder: A folder with `config.json` or `open_clip_config.json`, `tokenizer.json` and,
            usually, `tokenizer_config.json`.
        context_length: The number of ids of each text; None for the configuration's.

    Attributes:
        context_length: The number of ids of each text.
        full: Whether the tower was trained on padded texts without a mask, as in SigLIP.

    Raises:
        FileNotFoundError: There is no `tokenizer.json`.
        ValueError: A file is damaged, or the kind of the text tower is not supported.
        ImportError: The package tokenizers is not installed.

    Example:
        ```python
        tokenize = weights.TextTokenizer("clip-vit-base-patch32/")
        input_ids, attention_mask = tokenize(["a photo of a cat"])
        ```
    """

    def __init__(self, folder: str | os.PathLike, context_length: int | None = None):
        library = extras.require("tokenizers")
        folder = os.fspath(folder)
        config, path = weight_file.read_config(folder), os.path.join(folder, "tokenizer.json")
        if not os.path.isfile(path):
            raise FileNotFoundError(
                f"Texts need a tokenizer.json, which {folder!r} lacks. transformers "
                "writes one: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
            )
        with named_errors(path):
            kind, length, pad_id = self._read(config)
            self.context_length = length if context_length is None else context_length
            with readable(f"{path!r} is damaged"):
                self.tokenizer = library.Tokenizer.from_file(path)
            settings = _settings(folder)
            style = settings.get("tokenizer_class") or ""
            if kind in text_formats.KINDS and style.startswith("Siglip2"):  # whatever the file says
                kind = "siglip2"
            self._clean(library, kind)
            if pad_id is not None:
                settings["pad_token"] = self.tokenizer.id_to_token(pad_id)
            like = "siglip2" if style.startswith(GEMMA) else kind
            side, held = "left" if like == "siglip2" else "right", self.tokenizer.padding or {}
            settings.setdefault("pad_token", held.get("pad_token") or PADS.get(like, "<pad>"))
            settings.setdefault("padding_side", held.get("direction") or side)
            self._configure(settings)

    def _read(self, config) -> tuple[str, int, int | None]:
        """Returns the kind of tower (or of OpenCLIP's cleaning), the length, the pad or None."""
        if (text := model_field(config, "text_cfg")) is None or "model_type" in config:
            kind = text_formats.kind_of(config)
            self.full = text_formats.KINDS[kind][1] is text_formats.SIGLIP
            fields, usual = text_formats.text_config(config), 64 if self.full else 77
            return kind, fields.get("max_position_embeddings", usual), None
        self.full, options = bool(text.get("no_causal_mask")), text.get("tokenizer_kwargs") or {}
        held = {**text, **options}
        if unread := [name for name in UNREAD if held.get(name)]:
            raise ValueError(
                "OpenCLIP's tokenizers may only clean, pad and cut texts. Received: "
                f"{', '.join(unread)} in {CONFIG}"
            )
        default, pad_id = ("whitespace", None) if text.get("hf_tokenizer_name") else ("lower", 0)
        kind = options.get("clean", default)
        check_choice(kind, CLEANINGS, "clean")
        return kind, text.get("context_length", 77), pad_id

    def _clean(self, library, kind):
        """Puts OpenCLIP's cleaning, or that of a kind of tower, before the tokenizer's own."""
        make, before = library.normalizers, self.tokenizer.normalizer
        steps = [make.Replace("_", " "), make.Replace(library.Regex(PUNCTUATION), "")]
        steps = steps if kind == "canonicalize" else []
        if kind in ("siglip2", "lower", "canonicalize"):
            steps.append(make.Lowercase())
        if kind in CLEANINGS:
            steps += [make.Replace(library.Regex(r"\s+"), " "), make.Strip()]
        if steps:
            self.tokenizer.normalizer = make.Sequence([*steps, *([before] if before else [])])

    def _configure(self, settings):
        """Sets special tokens, padding and truncation as transformers' classes do."""
        tokenizer, pad = self.tokenizer, settings["pad_token"]
        known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        special = [settings[name] for name in SPECIAL if name in settings]
        tokenizer.add_special_tokens([token for token in special if token not in known])
        side, length = settings.get("truncation_side", "right"), self.context_length
        tokenizer.enable_truncation(length, direction=side)
        side, number = settings["padding_side"], tokenizer.token_to_id(pad)
        tokenizer.enable_padding(direction=side, pad_id=number, pad_token=pad, length=length)

    def __call__(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of texts and their attention mask, both `(K, context_length)` int32."""
        encoded = self.tokenizer.encode_batch(list(texts))
        arrays = ([getattr(text, key) for text in encoded] for key in ("ids", "attention_mask"))
        ids, mask = (np.array(rows, "int32").reshape(-1, self.context_length) for rows in arrays)
        return ids, mask


def _settings(folder: str) -> dict[str, Any]:
    """Returns the fields of a tokenizer's configuration, with tokens as texts."""
    settings: dict[str, Any] = {}
    for path in (os.path.join(folder, name) for name in TOKENIZER_FILES):
        if os.path.isfile(path):
            settings |= read_json(path)
    token = lambda value: value.get("content", value) if isinstance(value, dict) else value
    return {key: token(value) for key, value in settings.items() if value is not None}


PLACE = "{}"  # the place of a label in a template
BATCH = 64  # texts per pass


@dataclasses.dataclass(frozen=True)
class TextEmbeddings:
    """The embeddings of K class names, as written by `vit-keras labels`.

    Attributes:
        labels: The K names.
        embeddings: `(K, E)`, of length 1.
        scale: The factor that multiplies the cosines of images and texts.
        bias: The number added to each product.
        kind: "softmax" if one name fits an image, or "sigmoid" if any number of names may.
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
        check_types(self)
        is_table = self.embeddings.ndim == 2 and self.embeddings.dtype.kind == "f"
        if not (is_table and fits(self.embeddings, "float32")):
            raise ValueError(
                "`embeddings` must be a float array of shape (K, E), finite as float32. "
                f"Received: {self.embeddings.dtype} of shape {self.embeddings.shape}"
            )
        check_class_names(self.labels, len(self.embeddings))


def write_text_embeddings(path: str | os.PathLike, texts: TextEmbeddings) -> None:
    """Writes embeddings of class names.

    Args:
        path: The `.npz` file. Its arrays are the fields of `TextEmbeddings`.
        texts: The embeddings.

    Example:
        ```python
        texts = weights.TextEmbeddings(("cat", "dog"), embeddings, scale=100.0)
        weights.write_text_embeddings("embeddings.npz", texts)
        ```
    """
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in vars(texts).items()}
    arrays["embeddings"] = arrays["embeddings"].astype("float32")
    with replacing(path) as temporary, open(temporary, "wb") as file:  # whatever its suffix
        np.savez(file, **arrays)


def read_text_embeddings(path: str | os.PathLike) -> TextEmbeddings:
    """Reads embeddings of class names.

    Args:
        path: A file from `write_text_embeddings` or other code. It must have the arrays `labels` (K
            texts), `embeddings` `(K, E)` and `scale`; `bias`, `kind` and `model` are optional.

    Returns:
        A `TextEmbeddings`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is not an `.npz`, lacks an array, or has one of the wrong form.

    Example:
        ```python
        texts = weights.read_text_embeddings("embeddings.npz")
        ```
    """
    with contextlib.closing(NpzTensors(os.fspath(path))) as file, named_errors(path):
        names = TextEmbeddings.__dataclass_fields__.keys() & file.shapes.keys()
        arrays = {name: file.raw(name) for name in names}
        labels = tuple(map(str, np.atleast_1d(arrays.pop("labels"))))
        embeddings = arrays.pop("embeddings")
        return TextEmbeddings(labels, embeddings, **{k: x.item() for k, x in arrays.items()})


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
        FileNotFoundError, ValueError: As in these two functions, or if the file lacks a name.
            Messages name the model that made the embeddings.

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
            f"The labels in {os.fspath(path)!r} must include the names of all classes. Received: "
            f"{short(list(texts.labels))}, without {short(missing)}"
        )
    embeddings = texts.embeddings[[texts.labels.index(name) for name in names]]
    values = texts.scale, texts.bias, names, texts.kind
    made_by = f" of {texts.model}" if texts.model else ""
    with named_errors(f"{os.fspath(path)}{made_by}"):
        return head_from_text(model, embeddings, *values, **adapter)


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
    if not (labels and templates and all(PLACE in template for template in templates)):
        raise ValueError(
            f"`labels` must not be empty, and `templates` must be texts in which {PLACE} stands "
            f"for a label. Received: labels={short(list(labels))}, templates={list(templates)}"
        )
    text, logits = text_tower(folder, attention_mask=True)
    tokenize = TextTokenizer(folder, text.get_layer("text_embedding").sizes["context_length"])
    ids, mask = tokenize([t.replace(PLACE, label) for label in labels for t in templates])
    inputs = [ids, np.ones_like(mask) if tokenize.full else mask]
    embedded = text.predict(inputs, batch_size=BATCH, verbose=0).astype("float64")
    embedded = embedded.reshape(len(labels), len(templates), -1)  # (K, templates, E)
    unit = keras.utils.normalize
    return TextEmbeddings(
        tuple(labels),
        unit(unit(embedded).mean(axis=1)).astype("float32"),
        math.exp(logits["logit_scale"]),
        logits.get("logit_bias", 0.0),
        kind="sigmoid" if "logit_bias" in logits else "softmax",
        model=pathlib.Path(folder).resolve().name,
    )
