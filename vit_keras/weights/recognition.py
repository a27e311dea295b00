"""Recognizes a model's sizes, variant and family from names, shapes and arguments."""

from collections.abc import Mapping
from typing import Any

from vit_keras import variants
from vit_keras.layers.common import Prefix, ViTOptions
from vit_keras.support.preprocessing import with_tuples
from vit_keras.variants import families

SIZES = ("hidden_size", "num_layers", "num_heads", "mlp_dim")
# Options that do not decide: the weights contain what matters, or they follow from sizes.
UNDECIDED = (
    *("layer_scale", "rope", "crop_to_patches", "head_use_bias", "qkv_bias", "mlp", "mlp_norm"),
    *("class_token", "distillation_token", "position_cover", "map_heads", "map_mlp_dim"),
    *("window_size", "global_blocks"),
)
# Arguments that choose among families with the same architecture.
HINTS = ("gelu", "layer_norm_epsilon", "image_size", "num_classes")


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
    alike = [
        name
        for name, row in families.VARIANTS.items()
        if row.family == family and _has_sizes(row, arguments) and _is_alike(row, arguments)
    ]
    if alike:
        return max(alike, key=lambda name: _agreement(families.VARIANTS[name], arguments))
    for name, row in variants.PAPER.items():
        expected = {"resnet_layers": None, "hidden_size": None, **vars(row)}
        expected.pop("num_heads", None)  # some files do not give it
        if all(arguments.get(key) in (value, (value,) * 2) for key, value in expected.items()):
            return name
    return None


def family_name(arguments: Mapping[str, Any], called: str = "") -> str | None:
    """Returns the name of a model's family, independent of its sizes.

    Args:
        arguments: As in `variant_name`.
        called: As in `variant_name`.

    Returns:
        A name in `vit_keras.variants.families.FAMILIES`, such as "DINOv2"; None for the paper's
        models, for unnamed ones with the same architecture, and for unknown ones.
    """
    arguments = with_tuples(arguments)
    alike = [row for row in families.VARIANTS.values() if _is_alike(row, arguments)]
    key = families.family_called(called)
    if key in {row.family for row in alike}:
        return key
    is_paper = alike and _options(arguments).keys() == {"prefix"}  # whatever family is called
    if not alike or (is_paper and arguments["classifier"] in ("token", "gap", "gap_norm")):
        return None
    fits = lambda row: (_has_sizes(row, arguments), _agreement(row, arguments))
    return max(alike, key=fits).family


def _has_sizes(row, arguments):
    patch = arguments.get("patch_size")
    sizes = {size: getattr(row, size) for size in SIZES}
    same = all(arguments.get(size, value) == value for size, value in sizes.items())
    return same and patch in (row.patch_size, (row.patch_size,) * 2)


def _is_alike(row, arguments):
    """Whether a model with these arguments, of any size, computes like the row's model."""
    if arguments.get("resnet_layers") is not None or "classifier" not in arguments:
        return False
    expected = row.constructor_arguments()
    positions = arguments.get("position_embedding", "learned")
    pools = {"map"} & {arguments["classifier"], expected["classifier"]}
    return (
        (not pools or arguments["classifier"] == expected["classifier"])
        and positions == expected["position_embedding"]
        and _options(arguments) == _options(expected)
    )


def _options(arguments):
    """Returns the options that decide which weights exist, if different from the paper's."""
    options = ViTOptions.among(arguments)
    changed = {name: value for name, value in options.changed().items() if name not in UNDECIDED}
    prefix = Prefix.of(arguments["classifier"], options)
    changed["prefix"] = prefix.names
    covered = prefix.positions(options.position_cover)
    if arguments.get("position_embedding", "learned") == "learned" and covered < prefix.count:
        changed["position_cover"] = True
    if options.layer_scale is not None:
        changed["layer_scale"] = True
    if options.rope is not None:
        changed["rope"] = (options.rope.centered, options.rope.mixed)
    return changed


def _agreement(row, arguments):
    expected = row.constructor_arguments()
    hints = {key: arguments[key] for key in HINTS if key in arguments}
    same = [value in (expected[key], (expected[key],) * 2) for key, value in hints.items()]
    return sum(same) + (arguments.get("mlp", "gelu") == expected.get("mlp", "gelu"))
