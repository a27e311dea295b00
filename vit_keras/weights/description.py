"""Describes a file of weights in plain values."""

import dataclasses
import json
import math
import os
import re

from vit_keras.models.architectures import class_for
from vit_keras.support.files import sha256
from vit_keras.variants import families
from vit_keras.weights.containers.checks import check_tensors
from vit_keras.weights.formats.registry import BESIDE, LEFT_OUT
from vit_keras.weights.formats.timm.architectures import license_of
from vit_keras.weights.recognition import family_name, variant_name
from vit_keras.weights.weight_file import open_weight_file


def describe(path: str | os.PathLike, source: str | None = None) -> dict:
    """Describes a file or folder of weights without building its model.

    Names and shapes come from headers. The whole file is read for its SHA-256, and once more if it
    records its own SHA-256, which is then checked.

    Args:
        path: A file or folder of weights in any format.
        source: The name of the format; None detects it from the tensors' names.

    Returns:
        A dictionary of values that JSON can hold:

        - `format`: the name of the format, such as "timm";
        - `variant`: the name of the variant with these sizes, such as "B/16", or None;
        - `family` and `size`: the family, such as "DINOv2", and the size in it, such as "S/14";
          None for the paper's models;
        - `license`: the license that the file names, or else that of the family's publisher; None
          if unknown;
        - `head`: "classifier", "projection" to the embeddings of texts, or None without a head;
        - `left_out`: other content of the file, such as "text tower";
        - `architecture`: the arguments of the model's constructor from the file; empty for a
          `.keras` file of a model that is neither a Vision Transformer nor a ResNet;
        - `missing`: the arguments that `vit_keras.open` also needs;
        - `parameters`: the number of weights in the file;
        - `preprocessing`: how pixels become the model's input, or None if unknown;
        - `class_names`: a list, or None;
        - `files`: `path`, `bytes` and `sha256` of each file of weights; its `hashes` are
          "verified" if the file records its own SHA-256, or else None.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If the file is damaged or of no known format.
        ImportError: If the file needs a package that is not installed.

    Example:
        ```python
        vit_keras.weights.describe("ViT-B_16.npz")["architecture"]["num_heads"]  # 12
        ```
    """
    with open_weight_file(path, source) as file:
        model = _model(file)
        format_name, digests = file.format.name, file.tensors.digests
        check_tensors(file.tensors, ())
        paths = [file.path, *dict.fromkeys(file.tensors.elsewhere.values())]
    files = [_file(path) | {"hashes": "verified" if path in digests else None} for path in paths]
    return json.loads(json.dumps({"format": format_name, **model, "files": files}, default=_plain))


def _plain(value):
    """Returns the fields of a dataclass, or a NumPy number as a Python number."""
    is_record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return dataclasses.asdict(value) if is_record else value.item()


def _model(file):
    """Describes the model of a file."""
    try:
        said = file.arguments
    except ValueError:
        if not file.path.endswith(".keras"):
            raise
        said = {}  # a `.keras` file may hold any model
    architecture, arguments = class_for(said), file.all_arguments if said else {}
    required = (*architecture.required, *architecture.numerics_fields[:1])
    variant, key = (name(arguments, file.called) for name in (variant_name, family_name))
    row, family = families.VARIANTS.get(variant or ""), families.FAMILIES.get(key or "")
    head = "classifier" if said.get("head_use_bias", True) else "projection"
    numerics, ignored = file.numerics, file.format.ignored
    shapes = [shape for name, shape in file.shapes.items() if not name.startswith(ignored)]
    read = {old for name, old in file.names.items() if not name.startswith((BESIDE, *ignored))}
    unread = file.tensors.shapes.keys() - read
    left_out = [
        part
        for part in ("text tower", "decoder")
        if any(re.match(rf"(?:.*[.:])?(?:{LEFT_OUT[part]})", name) for name in unread)
    ]
    return {
        "variant": variant,
        "family": key,
        "size": row.size if row else None,
        "license": license_of(file.config) or (family.license if family else None),
        "head": head if said.get("num_classes") else None,
        "left_out": left_out,
        "architecture": arguments,
        "missing": [name for name in required if arguments and name not in arguments],
        "parameters": sum(map(math.prod, shapes)),
        "preprocessing": None if numerics is None else dataclasses.asdict(numerics.preprocessing),
        "class_names": None if numerics is None else numerics.class_names,
    }


def _file(path):
    return {"path": path, "bytes": os.path.getsize(path), "sha256": sha256(path)}
