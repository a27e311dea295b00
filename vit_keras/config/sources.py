"""What a command line and its files say, and which of their fields later ones replace.

A field that is given is never undermined by another field of an earlier file: `--model.variant`
replaces the sizes in a recipe, and `--model.weights` its whole architecture.
"""

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vit_keras import extras
from vit_keras.config.model import DEFAULTS, SIZES, STEM
from vit_keras.config.recipes import find_recipe
from vit_keras.config.run import Config
from vit_keras.config.yaml_files import read_yaml
from vit_keras.hub_address import is_address

VARIANT_SIZES = tuple(f"model.{name}" for name in (*SIZES, *STEM))
ARCHITECTURE = (
    *VARIANT_SIZES,
    *(f"model.{name}" for name in DEFAULTS),
    "model.representation_size",
    "model.options",
)
PICTURES = ("model.antialias", "model.rounding")  # which weights bring as well
# Field: the fields that it replaces where an earlier source gives them.
REPLACED: dict[str, tuple[str, ...]] = {
    "model.variant": (*VARIANT_SIZES, "model.options"),
    "model.weights": (*ARCHITECTURE, *PICTURES),
    "epochs": ("total_steps",),
    "total_steps": ("epochs",),
    "optimizer.warmup_steps": ("optimizer.warmup_fraction",),
    "optimizer.warmup_fraction": ("optimizer.warmup_steps",),
}
MAPPINGS = ("model.options",)  # fields that are mappings themselves
UNSET = {"optimizer.warmup_steps": 0}  # where it is not null


def in_order(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separates the files that `--config` names, in their order, from the other arguments."""
    files: list[str] = []
    others: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, value = argument.partition("=")
        if name != "--config":
            others.append(argument)
        elif equals:
            files.append(value)
        else:
            files += [next(remaining, "")]
    return [str(find_recipe(name)) for name in files], others


def replaced_fields(files: Sequence[str], arguments: Sequence[str]) -> dict[str, Any]:
    """The fields that do not count, since a later source replaces them, with their empty values.

    Args:
        files: YAML files; each is a source.
        arguments: Options `--FIELD VALUE` or `--FIELD=VALUE`, which together are the last source.
    """
    sources = [dict(flat_fields(_fields_in(file))) for file in files]
    sources.append(dict(_given(arguments)))
    last = {name: number for number, source in enumerate(sources) for name in source}
    dropped = {
        field
        for name, fields in REPLACED.items()
        if name in last and sources[last[name]][name] is not None
        for field in fields
        if last.get(field, -1) < last[name]
    }
    if "model.variant" in last:  # which decides them where nothing else does
        dropped |= {f"model.{name}" for name in DEFAULTS} - last.keys()
    if _drops_variant(sources, last):
        dropped.add("model.variant")
    return {name: UNSET.get(name) for name in dropped}


def _drops_variant(sources, last):
    """Whether later sources give what replaces the variant: sizes, or a file of weights."""
    place, weights = last.get("model.variant", -1), last.get("model.weights", -1)
    path = weights > place and sources[weights]["model.weights"]
    if path and (os.path.exists(path) or is_address(path)):
        return True  # a published name belongs to a variant instead
    enough = all if place >= 0 else any  # sizes may change a variant that is given
    return enough(last.get(f"model.{size}", -1) > place for size in SIZES)


def _fields_in(file) -> dict[str, Any]:
    """The fields in a YAML file. The parser would open files that stand for sections."""
    fields = read_yaml(file)
    _check_sections(fields, Config, "", file)
    if "config" in fields:
        raise ValueError(f"{str(file)!r} must hold fields alone. Received: `config`, an option")
    return fields


def _check_sections(fields, kind, prefix, file):
    """Raises ValueError where a section, or one inside it, holds anything but fields."""
    for field in dataclasses.fields(kind):
        value = fields.get(field.name, {})
        if not dataclasses.is_dataclass(field.type):
            continue
        name = f"{prefix}{field.name}"
        if not isinstance(value, Mapping):
            raise ValueError(f"`{name}` in {str(file)!r} must hold fields. Received: {value!r}")
        _check_sections(value, field.type, f"{name}.", file)


def _given(arguments) -> Iterator[tuple[str, Any]]:
    yaml = extras.require("yaml", extra="train", purpose="Reading a configuration")
    for argument, following in zip(arguments, [*arguments[1:], ""]):
        option = re.match(r"--([\w.]+)(?:=(.*))?$", argument, re.DOTALL)
        if option:
            text = following if option[2] is None else option[2]
            try:
                value = yaml.safe_load(text)
            except yaml.YAMLError:
                value = text
            yield from flat_fields(value, option[1])


def flat_fields(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each field with its dotted name."""
    if not isinstance(value, Mapping) or prefix in MAPPINGS:
        if prefix:
            yield prefix, value
        return
    for name, inner in value.items():
        yield from flat_fields(inner, f"{prefix}.{name}" if prefix else str(name))
