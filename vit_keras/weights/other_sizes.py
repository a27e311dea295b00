"""A file's tensors for a model of another size: positions, patch kernels and other channels."""

import itertools
import math
import warnings

import numpy as np

from vit_keras.models.resized import RELATIVE_TABLE
from vit_keras.resizing import (
    Resizing,
    adapt_patch_kernel,
    change_channels,
    resize_position_embeddings,
    resize_relative_table,
)
from vit_keras.weights.architectures import square_side
from vit_keras.weights.architectures.inference import grid_of
from vit_keras.weights.weight_file import WeightFile

POSITIONS, PATCHES = "posembed_input/pos_embedding", "embedding/kernel"
ROOTS = ("conv_root/kernel", "root_block/conv_root/kernel")


def has_sizes(path: str) -> bool:
    """Whether the variable with this path can be had in other sizes, by `resize`."""
    return path in (POSITIONS, PATCHES, *ROOTS) or path.endswith(RELATIVE_TABLE)


def resize(
    path: str,
    array: np.ndarray,
    shape: tuple[int, ...],
    grid: tuple[int, int] | None,
    file: WeightFile,
    resizing: Resizing,
) -> np.ndarray:
    """Returns positions on the model's grid, or a kernel of its patch size and channels.

    Relative biases are positions too.

    Args:
        path: The path of the model's variable, for which `has_sizes` is true.
        array: The tensor of the file in the model's layout.
        shape: The shape of the variable.
        grid: The model's rows and columns of patches; None for a model without patches.
        file: The file.
        resizing: The rules.

    Raises:
        ValueError: If the tensor has no such size, or if nothing says the grid of its positions.
    """
    if array.ndim != len(shape) or array.shape[-1] != shape[-1]:
        raise ValueError(f"{array.shape} in the file, {shape} in the model")
    if path == POSITIONS and grid is not None and shape[1] >= math.prod(grid):
        return _resize_positions(array, shape, grid, file, resizing.positions)
    if path.endswith(RELATIVE_TABLE) and grid is not None:
        return _resize_biases(array, shape, grid, file, resizing.positions)
    if array.shape == shape:
        return array
    if path in ROOTS and array.shape[:2] == shape[:2]:
        return change_channels(array, shape[2])
    if path != PATCHES:
        raise ValueError(f"{array.shape} in the file, {shape} in the model")
    height, width, channels, _ = shape
    return adapt_patch_kernel(array, (height, width), channels, resizing.patches)


def inferred(file: WeightFile) -> dict:
    """The arguments of the model that the file says; empty if its architecture cannot be read."""
    try:
        return file.infer()
    except ValueError:
        return {}


def _resize_positions(array, shape, grid, file, rule):
    """`(1, T + h·w, D)` or `(1, h·w, D)` -> `shape`; slots that the file lacks become zero."""
    slots = shape[1] - math.prod(grid)
    old_grid, old_slots = _grid_in_file(array.shape[1], slots, grid, file)
    if old_grid != grid and array.shape[1] - math.prod(grid) in (slots, 0):
        _warn_of_equal_count(array, old_grid, grid, file)
    empty = np.zeros_like(array[:, : slots - old_slots])
    array = np.concatenate([empty, array], axis=1) if slots > old_slots else array
    return resize_position_embeddings(array, old_grid, grid, rule)


def _grid_in_file(count, slots, grid, file):
    """Returns the file's rows and columns of patches, and its slots before them.

    The count of positions alone does not say them: 16 are 4x4 patches, or 3x5 and a class token.
    What the file's configuration says comes first, then a square, then the grid of the model.
    """
    is_bare = file.path.endswith(".weights.h5") and "config" not in file.config
    if count == slots + math.prod(grid) and is_bare:
        return grid, slots  # Keras loads a `.weights.h5` into the model that wrote it
    for source, prefix in _order((_configured, _square, _of_the_model), (slots, 0), file):
        old_grid = source(count - prefix, grid, file)
        if old_grid is not None and math.prod(old_grid) == count - prefix:
            return old_grid, prefix
    raise ValueError(
        f"the file has {count} positions of a grid that is not square and that no "
        "configuration beside it describes; open it with from_checkpoint(path, "
        "image_size=(height, width)) and change its size with vit_keras.models.with_image_size"
    )


def _resize_biases(array, shape, grid, file, rule):
    """`((2h - 1)(2w - 1) + 3, H)` -> `shape`."""
    others = shape[0] - math.prod(2 * side - 1 for side in grid)
    side = square_side(len(array) - others) or 0
    square = ((side + 1) // 2,) * 2
    same = grid if file.numerics() is None else None
    for old_grid in (same, _configured(None, grid, file), square, grid):
        if old_grid and math.prod(2 * side - 1 for side in old_grid) == len(array) - others:
            return resize_relative_table(array, old_grid, grid, rule)
    raise ValueError(
        f"the file has {len(array) - others} biases of a grid that is not square and that no "
        "configuration beside it describes"
    )


def _order(sources, prefixes, file):
    """Pairs of both; the slots of the model come first unless the format may leave them out."""
    if file.format.slots_optional:
        return itertools.product(sources, prefixes)
    return ((source, prefix) for prefix, source in itertools.product(prefixes, sources))


def _configured(patches, grid, file):
    sizes = inferred(file)
    return grid_of(sizes) if "image_size" in sizes else None


def _square(patches, grid, file):
    side = square_side(patches)
    return None if side is None else (side, side)


def _of_the_model(patches, grid, file):
    return grid


def _warn_of_equal_count(array, old_grid, grid, file):
    """Warns where positions might as well be those of the model's grid, and nothing denies it."""
    if file.note or any(file.config.values()) or array.shape not in file.shapes.values():
        return  # a table that the file holds in another shape is `(h, w, D)`, which says the grid
    ours, theirs = f"{grid[0]}x{grid[1]}", f"{old_grid[0]}x{old_grid[1]}"
    warnings.warn(
        f"{file.path!r} does not say its grid. Its {array.shape[1]} positions are read as those of "
        f"{theirs} patches and resized to {ours}. If they belong to {ours} patches, load a "
        ".safetensors file that this package wrote, or a folder: both say their grid",
        stacklevel=2,
    )
