"""Turns texts into the ids that a text tower reads, by the `tokenizer.json` of its folder."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras.layers.base import check_choice, check_positive
from vit_keras.support import extras
from vit_keras.weights.containers import checks
from vit_keras.weights.formats.open_clip import CONFIG
from vit_keras.weights.formats.text import KINDS, SIGLIP, kind_of, open_clip_text, text_config
from vit_keras.weights.weight_file import read_config

PADS = {"clip": "<|endoftext|>", "siglip": "</s>"}  # others pad with "<pad>"
GEMMA = ("Gemma", "Siglip2")  # how classes with the defaults of SigLIP 2 are called
# What happens to texts before a tokenizer, by OpenCLIP's name or the kind of the tower.
CLEANED = {"siglip2": ("lower",), "whitespace": ("spaces", "strip")}
CLEANED["lower"] = ("lower", *CLEANED["whitespace"])
CLEANED["canonicalize"] = ("underscores", "punctuation", *CLEANED["lower"])
UNREAD = ("strip_sep_token", "tokenizer_mode", "language", "reduction_mask")
PUNCTUATION = r"[!-/:-@\[-`{-~]"  # of ASCII
SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "mask_token")
FILES = ("special_tokens_map.json", "tokenizer_config.json")  # the later one counts


class TextTokenizer:
    """The tokenizer in a folder of transformers or OpenCLIP, which gives the ids of their own.

    Texts are padded and cut to one length. Those for a SigLIP 2 become lowercase; those for an
    OpenCLIP are cleaned as `open_clip_config.json` says, but not repaired by ftfy.

    Args:
        folder: A folder with `config.json` or `open_clip_config.json`, `tokenizer.json` and,
            usually, `tokenizer_config.json`.
        context_length: The number of ids of each text; None for what the configuration says.

    Attributes:
        context_length: The number of ids of each text.
        full: Whether the tower was trained on padded texts without a mask, as in SigLIP.

    Raises:
        FileNotFoundError: There is no `tokenizer.json`.
        ValueError: A file is damaged, or the text tower has another kind.
        ImportError: The package tokenizers is not installed.

    Example:
        ```python
        tokenize = weights.TextTokenizer("clip-vit-base-patch32/")
        input_ids, attention_mask = tokenize(["a photo of a cat"])
        ```
    """

    def __init__(self, folder: str | os.PathLike, context_length: int | None = None):
        library = extras.require("tokenizers", extra="text", purpose="Reading a tokenizer")
        folder = os.fspath(folder)
        config, path = read_config(folder), os.path.join(folder, "tokenizer.json")
        if not os.path.isfile(path):
            raise FileNotFoundError(
                f"Texts need a tokenizer.json, which {folder!r} lacks. transformers "
                "writes one: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
            )
        with checks.named_errors(path):
            kind, length, pad_id = self._read(config)
            self.context_length = length if context_length is None else context_length
            check_positive(context_length=self.context_length)
            with checks.readable(f"{path!r} is damaged"):
                self.tokenizer = library.Tokenizer.from_file(path)
            settings = _settings(folder)
            style = settings.get("tokenizer_class") or ""
            if kind in KINDS and style.startswith("Siglip2"):  # whatever the file says
                kind = "siglip2"
            self._clean(library, CLEANED.get(kind, ()))
            if pad_id is not None:
                settings["pad_token"] = self.tokenizer.id_to_token(pad_id)
            like = "siglip2" if style.startswith(GEMMA) else kind
            side, held = "left" if like == "siglip2" else "right", self.tokenizer.padding or {}
            settings.setdefault("pad_token", held.get("pad_token") or PADS.get(like, "<pad>"))
            settings.setdefault("padding_side", held.get("direction") or side)
            self._configure(settings)

    def _read(self, config) -> tuple[str, int, int | None]:
        """Returns the kind or, in OpenCLIP, the cleaning of texts; the length; perhaps a pad."""
        if (text := open_clip_text(config)) is None or "model_type" in config:
            kind = kind_of(config)
            self.full = KINDS[kind][1] is SIGLIP
            length = text_config(config).get("max_position_embeddings", 64 if self.full else 77)
            return kind, length, None
        self.full, options = bool(text.get("no_causal_mask")), text.get("tokenizer_kwargs") or {}
        held = {**text, **options}
        if unread := [name for name in UNREAD if held.get(name)]:
            raise ValueError(
                "OpenCLIP's tokenizers are read without other changes of texts and ids. Received: "
                f"{', '.join(unread)} in {CONFIG}"
            )
        default, pad_id = ("whitespace", None) if text.get("hf_tokenizer_name") else ("lower", 0)
        kind = options.get("clean", default)
        check_choice(kind, CLEANED, "clean")
        return kind, text.get("context_length", 77), pad_id

    def _clean(self, library, names):
        """Puts steps before the tokenizer's own."""
        make, before = library.normalizers, self.tokenizer.normalizer
        steps = {
            "underscores": make.Replace("_", " "),
            "punctuation": make.Replace(library.Regex(PUNCTUATION), ""),
            "lower": make.Lowercase(),
            "spaces": make.Replace(library.Regex(r"\s+"), " "),
            "strip": make.Strip(),
        }
        chosen = [steps[name] for name in names] + ([before] if before else [])
        if names:
            self.tokenizer.normalizer = make.Sequence(chosen)

    def _configure(self, settings):
        """Sets special tokens, padding and truncation as transformers' classes do."""
        tokenizer, pad = self.tokenizer, settings["pad_token"]
        known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        special = [settings[name] for name in SPECIAL if name in settings]
        tokenizer.add_special_tokens([token for token in special if token not in known])
        side = settings.get("truncation_side", "right")
        tokenizer.enable_truncation(self.context_length, direction=side)
        fill = {"pad_id": tokenizer.token_to_id(pad), "pad_token": pad}
        fill["direction"] = settings["padding_side"]
        tokenizer.enable_padding(length=self.context_length, **fill)

    def __call__(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of texts and their attention mask, both `(K, context_length)` int32."""
        encoded = self.tokenizer.encode_batch(list(texts))
        arrays = ([getattr(text, key) for text in encoded] for key in ("ids", "attention_mask"))
        ids, mask = (np.array(rows, "int32").reshape(-1, self.context_length) for rows in arrays)
        return ids, mask


def _settings(folder: str) -> dict[str, Any]:
    """Returns the fields of a tokenizer's configuration, with tokens as texts."""
    settings: dict[str, Any] = {}
    for path in (os.path.join(folder, name) for name in FILES):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                text = file.read(checks.LARGEST_JSON_BYTES + 1)
            settings |= checks.parse_json(text, repr(path))
    token = lambda value: value.get("content", value) if isinstance(value, dict) else value
    return {key: token(value) for key, value in settings.items() if value is not None}
