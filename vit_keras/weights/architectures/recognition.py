"""Which variant, and which family, a model with such arguments is."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from vit_keras import families, variants
from vit_keras.models.options import OPTION_NAMES, ViTOptions

SIZES = ("hidden_size", "num_layers", "num_heads", "mlp_dim")
# Options that do not decide: where the weights bring what matters, or that follow from sizes.
UNDECIDED = ("layer_scale", "rope", "crop_to_patches", "head_use_bias")
# Arguments that choose among families whose models are built alike.
HINTS = ("gelu", "layer_norm_epsilon", "image_size", "num_classes")
# Classifiers that read the same features of a published model otherwise.
ALSO_READ = {"token": ("token_gap",)}


def variant_name(arguments: Mapping[str, Any], called: str = "") -> str | None:
    """Returns the name of the variant with such arguments; None if there is none.

    Args:
        arguments: Arguments of a constructor in `vit_keras.models`. Some may be missing.
        called: What the project calls the model, such as "vit_small_patch14_dinov2". It decides
            between a variant of the paper and families whose models are built like it.

    Returns:
        A name such as "L/16" or "DINOv2-S/14".
    """
    paper = _of_the_paper({"resnet_layers": None, **arguments})
    alike = [name for name, row in families.VARIANTS.items() if _is_alike(row, arguments)]
    if not alike:
        return paper
    key = families.family_called(called)
    named = [name for name in alike if families.VARIANTS[name].family == key]
    plain = not _options(arguments) and arguments.get("classifier") != "map"
    if not named and plain and arguments.get("classifier") != "distilled":
        return paper
    ranked = sorted(named or alike, key=lambda name: -_agreement(name, arguments))
    return ranked[0]


def family_name(arguments: Mapping[str, Any], called: str = "") -> str | None:
    """Returns the name of the family, such as "DINOv2"; None for the paper's models."""
    row = families.VARIANTS.get(variant_name(arguments, called) or "")
    return row.family if row else None


def _of_the_paper(sizes):
    for name, row in variants.PAPER.items():
        expected = {"resnet_layers": None, "hidden_size": None, **dataclasses.asdict(row)}
        expected.pop("num_heads", None)  # some files do not say it
        if "patch_size" in expected:
            expected["patch_size"] = (expected["patch_size"],) * 2
        if all(_tuples(sizes.get(field)) == value for field, value in expected.items()):
            return name
    return None


def _is_alike(row, arguments):
    """Whether a model with these arguments computes with the same kinds of weights as the row."""
    theirs, expected = dict(arguments), row.constructor_arguments()
    if theirs.get("resnet_layers") is not None or "classifier" not in theirs:
        return False
    patch = _tuples(theirs.get("patch_size"))
    if patch not in (row.patch_size, (row.patch_size,) * 2):
        return False
    if any(theirs.get(size, expected[size]) != expected[size] for size in SIZES):
        return False
    same = {expected["classifier"], *ALSO_READ.get(expected["classifier"], ())}
    if theirs["classifier"] not in same:
        return False
    if theirs.get("position_embedding", "learned") != expected["position_embedding"]:
        return False
    return _options(theirs) == _options(expected)


def _options(arguments):
    """The options that decide which weights there are, where they are not the paper's."""
    options = ViTOptions(**{name: arguments[name] for name in OPTION_NAMES if name in arguments})
    changed = {name: value for name, value in options.changed().items() if name not in UNDECIDED}
    if options.layer_scale is not None:
        changed["layer_scale"] = True
    if options.rope is not None:
        changed["rope"] = (options.rope.centered, options.rope.mixed)
    return changed


def _agreement(name, arguments):
    expected = families.VARIANTS[name].constructor_arguments()
    hints = {key: _tuples(arguments[key]) for key in HINTS if key in arguments}
    return sum(value in (expected[key], (expected[key],) * 2) for key, value in hints.items())


def _tuples(value):
    return tuple(value) if isinstance(value, list) else value
