"""Recognizes a model's sizes, variant and family from names, shapes and arguments."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from vit_keras import variants
from vit_keras.layers.common import Prefix, ViTOptions
from vit_keras.variants import families
from vit_keras.weights.architectures import (
    HybridArchitecture,
    ResNetArchitecture,
    VisionTransformerArchitecture,
    grid_of,
)


def class_for(sizes: dict) -> type[VisionTransformerArchitecture] | type[ResNetArchitecture]:
    """Returns the architecture class of a model with these `sizes`, which may be incomplete."""
    if "hidden_size" not in sizes:
        return ResNetArchitecture
    if sizes.get("resnet_layers") is None:
        return VisionTransformerArchitecture
    return HybridArchitecture


def count_blocks(names, prefix: str) -> int:
    """Counts the blocks called `{prefix}{i}.…` or `{prefix}{i}/…` in `names`."""
    pattern = re.compile(re.escape(prefix) + r"(\d+)[./]")
    return len({match[1] for match in map(pattern.match, names) if match})


def count_units(names, pattern: str) -> tuple[int, ...]:
    """Counts the units in each ResNet stage.

    Args:
        names: Names of tensors.
        pattern: A regular expression with two groups, the numbers of a stage and of a unit.
    """
    units: dict[int, set[int]] = {}
    for match in filter(None, map(re.compile(pattern).match, names)):
        units.setdefault(int(match[1]), set()).add(int(match[2]))
    return tuple(len(units[stage]) for stage in sorted(units))


def resnet_sizes(shapes: Mapping[str, tuple[int, ...]], root: str) -> dict[str, Any]:
    """Returns a ResNet's arguments from the names and shapes of its convolutions."""
    *_, channels, width = shapes[root]
    return {
        "resnet_layers": count_units(shapes, r"^block(\d+)/unit(\d+)/conv1/"),
        "resnet_width": width / variants.ROOT_WIDTH,
        "channels": channels,
    }


def square_side(positions: int) -> int | None:
    """Returns the side of a square grid of `positions` patches, or None without such a grid."""
    side = math.isqrt(max(positions, 0))
    return side if side * side == positions and side else None


def guess_image_size(
    positions: int, patch_size: tuple[int, int], prefix: int, resnet_layers=None
) -> dict:
    """Returns `{"image_size": (height, width)}` in pixels; empty if the grid is not square.

    Args:
        positions: The number of position embeddings.
        patch_size: Height and width of a patch, in cells of the stem's map for a hybrid.
        prefix: The number of embeddings before those of the patches, such as 1 for a class token.
        resnet_layers: The units of each stage of a hybrid's stem; None without a stem.
    """
    side = square_side(positions - prefix)
    if side is None:
        return {}
    stride = 1 if resnet_layers is None else variants.stem_stride(resnet_layers)
    return {"image_size": tuple(side * patch * stride for patch in patch_size)}


def check_plausible(sizes: dict, file, times: int = 1) -> None:
    """Checks that a model of these `sizes` needs no more weights than `file` can hold.

    Otherwise a few small tensors of odd shapes could claim any amount of memory.

    Args:
        sizes: The arguments of the constructor, as far as they are known.
        file: An open `WeightFile`.
        times: The largest ratio of the model's weights to the file's.

    Raises:
        ValueError: If the model would have far more weights than the file.
    """
    _check_counts(sizes, file)
    held = sum(math.prod(shape) for shape in file.shapes.values())
    claimed = _least_parameters({"image_size": (0, 0), **sizes})
    if claimed > times * held + 10**6:
        raise ValueError(
            f"The shapes in {file.path!r} and the configuration beside it contradict each other: "
            f"a model of {sizes} has at least {claimed} weights, the file has {held}"
        )


# The arguments that are counts, or pairs of counts.
COUNTS = (
    *("hidden_size", "num_layers", "num_heads", "mlp_dim", "num_classes", "channels"),
    *("representation_size", "patch_size", "num_registers", "map_heads", "map_mlp_dim"),
)


def _check_counts(sizes, file):
    """Raises ValueError for counts below their minimum, or for more blocks than tensors."""
    for name in COUNTS:
        value, least = sizes.get(name), int(name not in ("num_classes", "num_registers"))
        if (
            value is not None
            and min(value if isinstance(value, (tuple, list)) else [value]) < least
        ):
            raise ValueError(
                f"`{name}` must be a whole number of at least {least}. Received: {value!r}, as "
                f"{file.path!r} and the configuration beside it say"
            )
    depth = sizes.get("num_layers", 0) + sum(sizes.get("resnet_layers") or ())
    if depth > len(file.shapes):
        raise ValueError(f"{file.path!r} has fewer tensors than a model of {depth} blocks")


def _least_parameters(sizes):
    """Returns a lower bound: the number of weights in the large kernels."""
    root = int(variants.ROOT_WIDTH * sizes.get("resnet_width", 0))
    stages = sizes.get("resnet_layers") or ()
    total = sum(17 * (root * 2**s) ** 2 * units for s, units in enumerate(stages))
    if "hidden_size" in sizes:
        width, patch, layers = (sizes[k] for k in ("hidden_size", "patch_size", "num_layers"))
        hidden = sizes.get("representation_size") or 0
        channels = sizes.get("channels") or 0 if not stages else 0
        rows, columns = grid_of(sizes)
        total += width * (math.prod(patch) * channels + rows * columns + hidden)
        total += (hidden or width) * (sizes.get("num_classes") or 0)
        total += width * ((sizes.get("num_registers") or 0) + (sizes.get("map_mlp_dim") or 0))
        total += layers * (width * (4 * width + 2 * sizes["mlp_dim"]) + sizes["mlp_dim"])
    return total


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
    family = family_name(arguments, called)
    alike = [
        name
        for name, row in families.VARIANTS.items()
        if row.family == family and _has_sizes(row, arguments) and _is_alike(row, arguments)
    ]
    if alike:
        return max(alike, key=lambda name: _agreement(families.VARIANTS[name], arguments))
    return _of_the_paper({"resnet_layers": None, **arguments})


def family_name(arguments: Mapping[str, Any], called: str = "") -> str | None:
    """Returns the name of a model's family, independent of its sizes.

    Args:
        arguments: As in `variant_name`.
        called: As in `variant_name`.

    Returns:
        A name in `vit_keras.variants.families.FAMILIES`, such as "DINOv2"; None for the paper's
        models, for unnamed ones with the same architecture, and for unknown ones.
    """
    alike = [row for row in families.VARIANTS.values() if _is_alike(row, arguments)]
    key = families.family_called(called)
    if key in {row.family for row in alike}:
        return key
    if not alike or _is_plain(arguments):
        return None
    fits = lambda row: (_has_sizes(row, arguments), _agreement(row, arguments))
    return max(alike, key=fits).family


def _of_the_paper(sizes):
    for name, row in variants.PAPER.items():
        expected = {"resnet_layers": None, "hidden_size": None, **dataclasses.asdict(row)}
        expected.pop("num_heads", None)  # some files do not give it
        if "patch_size" in expected:
            expected["patch_size"] = (expected["patch_size"],) * 2
        if all(_tuples(sizes.get(field)) == value for field, value in expected.items()):
            return name
    return None


def _is_plain(arguments):
    """Whether a model has the paper's architecture, whatever family its name gives."""
    known = ("token", "gap", "gap_norm")
    options = _options(arguments)
    return arguments["classifier"] in known and options == {"prefix": options["prefix"]}


def _has_sizes(row, arguments):
    patch = _tuples(arguments.get("patch_size"))
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
    hints = {key: _tuples(arguments[key]) for key in HINTS if key in arguments}
    same = [value in (expected[key], (expected[key],) * 2) for key, value in hints.items()]
    return sum(same) + (arguments.get("mlp", "gelu") == expected.get("mlp", "gelu"))


def _tuples(value):
    return tuple(value) if isinstance(value, list) else value
