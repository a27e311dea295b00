"""What the names and shapes of a file's tensors say of its model."""

import math
import re

from vit_keras import variants
from vit_keras.weights.architectures.resnet import ResNetArchitecture
from vit_keras.weights.architectures.vision_transformer import (
    HybridArchitecture,
    VisionTransformerArchitecture,
)


def class_for(sizes: dict) -> type[VisionTransformerArchitecture] | type[ResNetArchitecture]:
    """The architecture class of a model with such `sizes`, which may be incomplete."""
    if "hidden_size" not in sizes:
        return ResNetArchitecture
    if sizes.get("resnet_layers") is None:
        return VisionTransformerArchitecture
    return HybridArchitecture


def count_blocks(names, prefix: str) -> int:
    """The number of blocks called `{prefix}{i}.…` or `{prefix}{i}/…` in `names`."""
    pattern = re.compile(re.escape(prefix) + r"(\d+)[./]")
    return len({match[1] for match in map(pattern.match, names) if match})


def count_units(names, pattern: str) -> tuple[int, ...]:
    """The number of units in each ResNet stage.

    Args:
        names: Names of tensors.
        pattern: A regular expression with two groups, the numbers of a stage and of a unit.
    """
    units: dict[int, set[int]] = {}
    for match in filter(None, map(re.compile(pattern).match, names)):
        units.setdefault(int(match[1]), set()).add(int(match[2]))
    return tuple(len(units[stage]) for stage in sorted(units))


def square_side(positions: int) -> int | None:
    """The side of a square grid of `positions` patches, or None if there is no such grid."""
    side = math.isqrt(max(positions, 0))
    return side if side * side == positions and side else None


def guess_image_size(
    positions: int, patch_size: tuple[int, int], prefix: int, resnet_layers=None
) -> dict:
    """`{"image_size": (height, width)}` in pixels; empty if the grid is not square.

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


def grid_of(sizes: dict) -> tuple[int, int]:
    """Rows and columns of patches of a model with such `sizes`."""
    stages = sizes.get("resnet_layers")
    stride = 1 if stages is None else variants.stem_stride(tuple(stages))
    pairs = zip(sizes["image_size"], sizes["patch_size"])
    return tuple(size // (patch * stride) for size, patch in pairs)


def check_plausible(sizes: dict, file, times: int = 1) -> None:
    """Checks that a model of such `sizes` needs no more weights than `file` can hold.

    Otherwise a few small tensors of odd shapes could claim any amount of memory.

    Args:
        sizes: The arguments of the constructor, as far as they are known.
        file: An open `WeightFile`.
        times: How many times the weights in the file the model may have.

    Raises:
        ValueError: If the model would have far more weights than the file.
    """
    _check_sizes(sizes, file)
    _check_depth(sizes, file)
    held = sum(math.prod(shape) for shape in file.shapes.values())
    claimed = _least_parameters({"image_size": (0, 0), **sizes})
    if claimed > times * held + 10**6:
        raise ValueError(
            f"The shapes in {file.path!r} and the configuration beside it contradict each other: "
            f"a model of {sizes} has at least {claimed} weights, the file has {held}"
        )


# The arguments that are numbers of something, or pairs of them.
COUNTS = (
    *("hidden_size", "num_layers", "num_heads", "mlp_dim", "num_classes", "channels"),
    *("representation_size", "patch_size", "num_registers", "map_heads", "map_mlp_dim"),
)


def _check_sizes(sizes, file):
    """Raises ValueError for sizes that are no numbers, or not positive."""
    for name in COUNTS:
        value = sizes.get(name)
        both = value if isinstance(value, (tuple, list)) else (value,)
        least = 0 if name in ("num_classes", "num_registers") else 1
        fine = all(isinstance(n, int) and n >= least for n in both)
        if value is not None and (isinstance(value, bool) or not fine):
            raise ValueError(
                f"`{name}` must be a whole number of at least {least}. Received: {value!r}, as "
                f"{file.path!r} and the configuration beside it say"
            )


def _check_depth(sizes, file):
    """Raises ValueError for more blocks and units than the file has tensors."""
    depth = sizes.get("num_layers", 0) + sum(sizes.get("resnet_layers") or ())
    if depth > len(file.shapes):
        raise ValueError(
            f"The tensors in {file.path!r} and the configuration beside it contradict each other: "
            f"a model of {depth} blocks has more tensors than the {len(file.shapes)} in the file"
        )


def _least_parameters(sizes):
    """A lower bound: the number of weights in the large kernels."""
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
