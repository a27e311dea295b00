"""Copies a whole file of weights into a model, or nothing."""

import functools
import itertools
import math
import os
import re
import warnings

import keras
import numpy as np

from vit_keras.layers import EncoderBlock, MAPHead, ResNetStage, StdConv
from vit_keras.layers.common import Prefix, ViTOptions, check_choice
from vit_keras.models import ImageModel, resizing_of
from vit_keras.models.architectures import Numerics, architecture_of, grid_of
from vit_keras.models.description import count_classes
from vit_keras.models.resized import RELATIVE_TABLE
from vit_keras.support import interpolation as resizers
from vit_keras.support.keras_internals import sublayers
from vit_keras.support.tasks import CLASSES
from vit_keras.weights.containers.checks import check_fit, check_tensors, fits
from vit_keras.weights.description import variant_name
from vit_keras.weights.formats.base import COVERS, square_side
from vit_keras.weights.formats.registry import OTHER_HEAD
from vit_keras.weights.formats.tensor_names import assign, misfits, read_links
from vit_keras.weights.weight_file import WeightFile

MARGIN = 1e3  # largest ratio of summed channels or resized values to the file's values


def copy_weights(model: keras.Model, file: WeightFile, head: str = "keep", rules=(None, None)):
    """Assigns the file's tensors to the model's variables, or raises an error and changes none.

    The model then prepares images as the file's source does; `set_computation` sets the rest.
    Shapes (from headers), checksums, types and values are checked before the first variable
    changes. `read_links` bounds the memory. `rules` resize positions and patch kernels; None stands
    for the rule of the source.
    """
    check_choice(head, ("keep", "drop", "reset"), "head")
    numerics = file.numerics
    resizing = resizing_of(model) if numerics is None else numerics.resizing
    resizing = resizing.replaced(*rules)
    variables = {variable.path: variable for variable in model.weights}
    links, resized = _matched(model, variables, file, head == "keep", resizing)
    used = dict.fromkeys(file.names[name] for link in links for name in link.theirs)
    largest = check_tensors(file.tensors, used)
    types = {variable.dtype for variable in variables.values()}
    if not all(fits(np.array(MARGIN * largest), dtype) for dtype in types):
        arrays = (
            (f"{', '.join(link.theirs)} -> {path}", array, variables[path].dtype)
            for link, path, array in read_links(links, file, resized)
        )
        check_fit(arrays, repr(file.path))
    assign(links, file, resized, variables)
    if head == "reset":
        for path in filter(_is_head, variables):
            variables[path].assign(np.zeros(variables[path].shape, "float32"))
    if numerics is not None and isinstance(model, ImageModel):
        model.preprocessing, model.resizing = numerics.preprocessing, resizing
        names = numerics.class_names
        if names is not None and len(names) == count_classes(model):
            model.class_names = tuple(names)
        if head == "keep" and numerics.task != CLASSES:
            model.task = numerics.task
    kernel = variables.get("head/kernel") if head == "keep" else None
    if kernel is not None and not np.any(keras.ops.convert_to_numpy(kernel)):
        warnings.warn(
            f"The classifier in {os.path.basename(file.path)!r} is all zero, as in the original "
            "ImageNet-21k files: all classes get the same logit until it is trained",
            stacklevel=3,
        )
    for remark in file.remarks:
        warnings.warn(remark, stacklevel=4)


def _matched(model, variables, file, keep_head, resizing):
    """Returns the links to assign, and the arrays of those whose size changes.

    Raises:
        ValueError: If the file does not fit. The message has one line per difference.
    """
    if len(variables) != len(model.weights):
        raise ValueError(
            f"The variables of model {model.name!r} must have different paths. Received: two with "
            "the same path; rename a layer"
        )
    row, shapes, resized = file.format, file.shapes, {}
    arch = row.architecture.from_model(model)
    links = row.links(arch, set(file.names), file.config)
    links = [link for link in links if keep_head or not _is_head(link.path)]
    # Without a tensor in the file, a link's values are made for the model's grid.
    sized = {link.path: link for link in links if link.theirs and SIZED.fullmatch(link.path)}
    faults = misfits(links, shapes, variables, sized)
    grid = getattr(arch, "grid", None)  # a ResNet has none
    for path, link in sized.items():
        if shapes.keys() >= {*link.theirs}:
            try:
                resized[path] = tuple(
                    _resize(ours, array, tuple(variables[ours].shape), grid, file, resizing)
                    for _, ours, array in read_links([link], file)
                )
            except ValueError as error:
                faults.append(f"{', '.join(link.theirs)} -> {path}: {error}")
    used = {name for link in links for name in link.theirs}
    ignored = row.ignored + (() if keep_head else (*row.head, OTHER_HEAD))
    unused = [name for name in shapes if name not in used and not name.startswith(ignored)]
    faults += [f"not in the model: {file.names[name]}, {shapes[name]}" for name in unused]
    linked = {path for link in links for path in link.ours}
    faults += [
        f"missing in the file: {path}, {tuple(variable.shape)} in the model"
        for path, variable in variables.items()
        if path not in linked and (keep_head or not _is_head(path))
    ]
    if faults:
        raise ValueError("\n  ".join([_title(model, file, keep_head and unused), *faults]))
    return links, resized


def _title(model, file, unused):
    title = f"{file.path!r} ({file.format.name}) does not fit model {model.name!r}"
    theirs, ours = inferred(file), sizes_of(model)
    names = variant_name(theirs), variant_name(ours)
    if all(names) and names[0] != names[1]:
        title += f": the file is for {names[0]}, the model is {names[1]}"
    if unused and all(name.startswith((*file.format.head, OTHER_HEAD)) for name in unused):
        title += '; head="drop" leaves the model\'s head as it is'
    return f"{title}:"


def _is_head(path):
    return path.startswith(("head/", "head_dist/"))


def sizes_of(model):
    """Returns the arguments of the model's constructor; empty if they are unknown."""
    arch = architecture_of(model)
    return {} if arch is None else arch.arguments


POSITIONS, PATCHES = re.compile(r"posembed_(input|\d+)/pos_embedding"), "embedding/kernel"
ROOTS = ("conv_root/kernel", "root_block/conv_root/kernel")
# The variables whose size `_resize` can change.
SIZED = re.compile("|".join([POSITIONS.pattern, PATCHES, *ROOTS, f".*{RELATIVE_TABLE}"]))


def _resize(path, array, shape, grid, file, resizing):
    """Returns positions on the model's grid, or a kernel with its patch size and channels.

    Relative biases are positions too. `SIZED` matches `path`. A model without patches has no grid.
    """
    if array.ndim == len(shape) and array.shape[-1] == shape[-1]:
        if POSITIONS.fullmatch(path) and grid is not None and shape[1] >= math.prod(grid):
            return _resize_positions(array, shape, grid, file, resizing.positions)
        if path.endswith(RELATIVE_TABLE) and grid is not None:
            return _resize_biases(array, shape, grid, file, resizing.biases or resizing.positions)
        if array.shape == shape:
            return array
        if path in ROOTS and array.shape[:2] == shape[:2]:
            return resizers.change_channels(array, shape[2])
        if path == PATCHES:
            height, width, channels, _ = shape
            kernel = resizers.change_channels(array, channels)
            return resizers.resample_patch_kernel(kernel, (height, width), resizing.patches)
    raise ValueError(f"{array.shape} in the file, {shape} in the model")


def inferred(file: WeightFile) -> dict:
    """Returns the model's arguments from the file; empty if its architecture cannot be read."""
    try:
        return file.arguments
    except ValueError:
        return {}


def _resize_positions(array, shape, grid, file, rule):
    """`(1, T + h·w, D)` or `(1, h·w, D)` -> `shape`; slots that the file lacks become zero."""
    slots = shape[1] - math.prod(grid)
    old_grid, old_slots = _grid_in_file(array.shape[1], slots, grid, file)
    sizes = inferred(file)
    prefix = Prefix.of(sizes.get("classifier", ""), ViTOptions.among(sizes))
    covered = (slots, *map(prefix.positions, COVERS))  # the slots that the file may have
    if old_grid != grid and array.shape[1] - math.prod(grid) in covered:
        _warn_of_equal_count(array, old_grid, grid, file)
    empty = np.zeros_like(array[:, : slots - old_slots])
    array = np.concatenate([empty, array], axis=1) if slots > old_slots else array
    if old_grid == grid:
        return array
    return resizers.resize_position_embeddings(array, old_grid, grid, rule)


def _grid_in_file(count, slots, grid, file):
    """Returns the file's rows and columns of patches, and its slots before them.

    The count of positions is ambiguous: 16 are 4x4 patches, or 3x5 and a class token. The file's
    configuration takes precedence, then a square, then the grid of the model.
    """
    is_bare = file.path.endswith(".weights.h5") and "config" not in file.config
    if count == slots + math.prod(grid) and is_bare:
        return grid, slots  # Keras loads a `.weights.h5` into the same model that wrote it
    said = _configured(file)
    pairs = []
    for prefix in (slots, 0):
        side = square_side(count - prefix)
        pairs += [(said, prefix), (side and (side, side), prefix), (grid, prefix)]
    if file.format.slots_optional:  # otherwise the slots of the model come first
        pairs = [*pairs[::3], *pairs[1::3], *pairs[2::3]]
    return _first_that_fits(pairs, count, math.prod)


def _first_that_fits(pairs, count, count_of):
    """Returns the first `((rows, columns), slots before them)` that has the file's count."""
    for old_grid, prefix in pairs:
        if old_grid and count_of(old_grid) == count - prefix:
            return old_grid, prefix
    raise ValueError(
        f"the file has {count} positions of a grid that is not square and that no configuration "
        "beside the file describes; open the file with vit_keras.open(path, "
        "image_size=(height, width)) and change the size with vit_keras.models.with_image_size"
    )


def _resize_biases(array, shape, grid, file, rule):
    """`((2h - 1)(2w - 1) + 3, H)` -> `shape`."""
    offsets = lambda sides: math.prod(2 * side - 1 for side in sides)
    others = shape[0] - offsets(grid)
    side = square_side(len(array) - others) or 0
    same = grid if file.numerics is None else None
    pairs = [(g, others) for g in (same, _configured(file), ((side + 1) // 2,) * 2, grid)]
    old_grid, _ = _first_that_fits(pairs, len(array), offsets)
    return resizers.resize_relative_table(array, old_grid, grid, rule)


def _configured(file):
    sizes = inferred(file)
    return grid_of(sizes) if "image_size" in sizes else None


def _warn_of_equal_count(array, old_grid, grid, file):
    """Warns if positions could also belong to the model's grid, and nothing excludes that."""
    if file.note or any(file.config.values()) or array.shape not in file.shapes.values():
        return  # a table with another shape in the file is `(h, w, D)`, which gives the grid
    ours, theirs = f"{grid[0]}x{grid[1]}", f"{old_grid[0]}x{old_grid[1]}"
    warnings.warn(
        f"{file.path!r} does not state its grid. Its {array.shape[1]} positions are read as "
        f"{theirs} patches and resized to {ours}. If they belong to {ours} patches, load a "
        ".safetensors file that this package wrote, or a folder: both state their grid",
        stacklevel=2,
    )


NORMALIZATIONS = (keras.layers.LayerNormalization, keras.layers.RMSNormalization)


NORMS = ("pre_norm", "encoder_norm", "head_norm")
STEM = (StdConv, ResNetStage, keras.layers.GroupNormalization)  # of a hybrid


def set_computation(model: keras.Model, numerics: Numerics) -> None:
    """Sets the GELU and the epsilons in the stem, blocks, pooling and norms of `model`."""
    epsilon = numerics.layer_norm_epsilon
    if epsilon is None:
        epsilon = next(b.layer_norm_epsilon for b in model.layers if isinstance(b, EncoderBlock))
    values = {"gelu": numerics.gelu, "layer_norm_epsilon": epsilon}
    values |= {n: getattr(numerics, n) for n in ("standardization", "group_norm_epsilon")}
    is_hybrid = any(isinstance(layer, StdConv) for layer in model.layers)
    kinds = (EncoderBlock, MAPHead, *(STEM if is_hybrid else ()))
    layers = [layer for layer in model.layers if isinstance(layer, kinds) or layer.name in NORMS]
    for part in itertools.chain.from_iterable(map(sublayers, layers)):
        for name in filter(functools.partial(hasattr, part), values):
            setattr(part, name, values[name])
        if isinstance(part, NORMALIZATIONS):
            part.epsilon = epsilon
        elif isinstance(part, keras.layers.GroupNormalization):
            part.epsilon = numerics.group_norm_epsilon
    # Compiled steps still hold the old values.
    model.train_function = model.test_function = model.predict_function = None
