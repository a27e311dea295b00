"""Describes a file of weights in plain values; recognizes a model's variant and family."""

import dataclasses
import json
import math
import os
import re
from collections.abc import Mapping
from typing import Any

from vit_keras import variants
from vit_keras.layers.common import Prefix, ViTOptions
from vit_keras.support.files import sha256
from vit_keras.support.preprocessing import with_tuples
from vit_keras.variants import families
from vit_keras.weights.containers.checks import check_tensors
from vit_keras.weights.formats.registry import BESIDE, LEFT_OUT
from vit_keras.weights.formats.timm.architectures import license_of
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
        - `architecture`: the arguments of the model's constructor that the file gives; empty for a
          `.keras` file of a model that is neither a Vision Transformer nor a ResNet;
        - `missing`: the arguments that `vit_keras.open` also needs;
        - `parameters`: the number of weights in the file;
        - `preprocessing`: how pixels become the model's input, or None if unknown;
        - `class_names`: a list, or None;
        - `files`: `path`, `bytes` and `sha256` of each file of weights; its `hashes` are
          "verified" if the file records its own SHA-256, or else None.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If the file is damaged or has no known format.
        ImportError: If the file needs a package that is not installed.

    Example:
        ```python
        vit_keras.weights.describe("ViT-B_16.npz")["architecture"]["num_heads"]  # 12
        ```
    """
    with open_weight_file(path, source) as file:
        described, tensors = _described(file), file.tensors
        check_tensors(tensors, ())
    digests = {part.path: part.digest for part in (tensors, *tensors.parts)}
    described["files"] = [
        {
            "path": path,
            "bytes": os.path.getsize(path),
            "sha256": sha256(path),
            "hashes": None if digest is None else "verified",
        }
        for path, digest in digests.items()
    ]
    return json.loads(json.dumps(described, default=_plain))


def _plain(value):
    """Returns the fields of a dataclass, or a NumPy number as a Python number."""
    is_record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return dataclasses.asdict(value) if is_record else value.item()


def _described(file):
    """Describes the model of a file."""
    try:
        arguments, missing = file.all_arguments, file.missing
    except ValueError:
        if not file.path.endswith(".keras"):
            raise
        arguments, missing = {}, []  # a `.keras` file may hold any model
    variant, key = (name(arguments, file.called) for name in (variant_name, family_name))
    row, family = families.VARIANTS.get(variant or ""), families.FAMILIES.get(key or "")
    head = "classifier" if arguments.get("head_use_bias", True) else "projection"
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
        "format": file.format.name,
        "variant": variant,
        "family": key,
        "size": row.size if row else None,
        "license": license_of(file.config) or (family.license if family else None),
        "head": head if arguments.get("num_classes") else None,
        "left_out": left_out,
        "architecture": arguments,
        "missing": missing,
        "parameters": sum(map(math.prod, shapes)),
        "preprocessing": numerics and dataclasses.asdict(numerics.preprocessing),
        "class_names": numerics and numerics.class_names,
    }


SIZES = ("hidden_size", "num_layers", "num_heads", "mlp_dim", "patch_size")
# Options that do not tell families apart: the weights contain what matters, or sizes decide them.
UNDECIDED = (
    *("layer_scale", "rope", "crop_to_patches", "head_use_bias", "qkv_bias", "mlp", "mlp_norm"),
    *("class_token", "distillation_token", "position_cover", "map_heads", "map_mlp_dim"),
    *("window_size", "global_blocks"),
)
# Arguments that choose among families with the same architecture.
HINTS = ("gelu", "layer_norm_epsilon", "image_size", "num_classes", "mlp")


def variant_name(arguments: Mapping[str, Any], called: str = "") -> str | None:
    """Returns the name of the variant with these arguments; None if there is none.

    Args:
        arguments: Arguments of a constructor in `vit_keras.models`. Some may be missing.
        called: The project's name for the model, such as "vit_small_patch14_dinov2". It decides
            between a variant of the paper and families with the same architecture.

    Returns:
        A name such as "L/16" or "DINOv2-S/14".
    """
    arguments = {"resnet_layers": None, **with_tuples(arguments)}
    family = family_name(arguments, called)
    similar = {
        name: row
        for name, row in _similar(arguments).items()
        if row.family == family and _has_sizes(row, arguments)
    }
    if similar:
        return max(similar, key=lambda name: _agreement(similar[name], arguments))
    for name, row in variants.PAPER.items():
        expected = {"resnet_layers": None, "hidden_size": None, **vars(row)}
        expected.pop("num_heads", None)  # some files do not give it
        if all(arguments.get(key) in (value, (value,) * 2) for key, value in expected.items()):
            return name
    return None


def family_name(arguments: Mapping[str, Any], called: str = "") -> str | None:
    """Returns the name of a model's family, whatever its sizes.

    Args:
        arguments: As in `variant_name`.
        called: As in `variant_name`.

    Returns:
        A name in `vit_keras.variants.families.FAMILIES`, such as "DINOv2"; None for the paper's
        models, for unnamed ones with the same architecture, and for unknown ones.
    """
    arguments = with_tuples(arguments)
    similar, key = _similar(arguments).values(), families.family_called(called)
    if key in {row.family for row in similar}:
        return key
    if not similar:
        return None
    changed = _design(arguments).keys() - {"prefix", "positions"}
    if not changed and arguments["classifier"] in ("token", "gap", "gap_norm"):
        return None  # the paper's models, whatever family `called` names
    return max(similar, key=lambda x: (_has_sizes(x, arguments), _agreement(x, arguments))).family


def _has_sizes(row, arguments):
    return _count_same(vars(row), arguments, SIZES) == len(SIZES)


def _count_same(expected, arguments, keys):
    """Counts the arguments that are absent or equal the expected value; of two sides, both must."""
    values = [(expected[key], arguments.get(key, expected[key])) for key in keys]
    return sum(value in (other, (other,) * 2) for other, value in values)


def _similar(arguments):
    """Returns the variants, of any size, that compute like a model with these arguments."""
    if arguments.get("resnet_layers") is not None or "classifier" not in arguments:
        return {}
    design, rows = _design(arguments), families.VARIANTS.items()
    return {name: row for name, row in rows if _design(row.constructor_arguments()) == design}


def _design(arguments):
    """Returns what decides which weights exist, as far as it differs from the paper's models."""
    options, classifier = ViTOptions.among(arguments), arguments["classifier"]
    changed = {name: value for name, value in options.changed().items() if name not in UNDECIDED}
    prefix = Prefix.of(classifier, options)
    positions = arguments.get("position_embedding", "learned")
    changed |= {"prefix": prefix.names, "positions": positions}
    if classifier == "map":
        changed["pooling"] = classifier
    if positions == "learned" and prefix.positions(options.position_cover) < prefix.count:
        changed["position_cover"] = True
    if options.layer_scale is not None:
        changed["layer_scale"] = True
    if options.rope is not None:
        changed["rope"] = (options.rope.centered, options.rope.mixed)
    return changed


def _agreement(row, arguments):
    mlp = {"mlp": "gelu"}  # the default
    return _count_same(mlp | row.constructor_arguments(), mlp | arguments, HINTS)
