"""PyTorch projects' names for the tensors of a plain Vision Transformer.

A `TensorNames` is one row of such a table. `tensor_links` turns a row into links, and
`tensor_sizes` reads a model's sizes and options from the shapes in a file.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from vit_keras import variants
from vit_keras.layers.common import Prefix, ViTOptions


def halves(size: int) -> np.ndarray:
    """Pairs (i, i + d/2), rows first, as in DINOv3 and in this package."""
    return np.arange(size)


def interleaved(size: int) -> np.ndarray:
    """Pairs (2i, 2i + 1), rows first, as in EVA-02."""
    return np.concatenate([np.arange(0, size, 2), np.arange(1, size, 2)])


def interleaved_columns_first(size: int) -> np.ndarray:
    """Pairs (2i, 2i + 1), columns first, as in PE."""
    pairs = np.roll(np.arange(size // 2), -(size // 4))
    return np.concatenate([2 * pairs, 2 * pairs + 1])


# Rotary positions rotate pairs of channels of queries and keys in a head, which projects order
# differently. This package pairs channels i and i + d/2, by rows for i < d/4 and by columns for the
# others. A layout gives the position of each channel in a file.
LAYOUTS: dict[str, Callable[[int], np.ndarray]] = {
    "halves": halves,
    "interleaved": interleaved,
    "interleaved_columns_first": interleaved_columns_first,
}


def pairs(text: str) -> dict[str, Any]:
    """Reads `field=name` pairs, separated by spaces."""
    return dict(pair.split("=") for pair in text.split())


@dataclasses.dataclass(frozen=True)
class TensorNames:
    """The names of a project's tensors: full names of parameters, prefixes of layers.

    Names in a block omit the block's prefix. An empty name means that the project has no such
    tensor.

    Attributes:
        patches: The projection of patches.
        block: The prefix of a block, with `{}` for its number.
        norm_0: The normalization before attention.
        out: The output projection of attention.
        norm_2: The normalization before the MLP; empty for a parallel block.
        dense_0: The first layer of the MLP, or its values.
        dense_1: The last layer of the MLP.
        norm: The normalization after the blocks.
        pooled_norm: The normalization after a mean; empty for `norm`.
        qkv: What precedes "weight" and "bias" of the fused projection of query, key and value, such
            as "attn.qkv." or "attn.in_proj_"; in a parallel block, of the MLP before them too.
        query: The prefix of the query's own projection; `key` and `value` likewise.
        query_bias: The full name of the query's bias beside a fused kernel; `value_bias` likewise.
        query_norm: The normalization of queries in each head; `key_norm` likewise.
        attention_norm: The normalization before `out`.
        scale_0: The full name of the first LayerScale; `scale_1` of the second.
        gate: The gate of SwiGLU; equal to `dense_0` if one layer holds gate and values.
        mlp_norm: The normalization before `dense_1`.
        parallel_bias: The full name of the MLP's bias in a parallel block whose `qkv` has no bias.
        relative: The full name of a block's table of relative biases.
        shared_relative: The full name of a table that all blocks share.
        frequencies: The full name of the learned frequencies of all blocks.
        cls: The full names of the class token, the distillation token, the registers and the
            position embeddings: `dist`, `registers`, `positions`.
        positions_of_blocks: The full name of the positions that are added before all blocks but the
            first, `(L - 1, 1, N, D)`.
        registers_last: Whether the positions of the registers follow those of the patches.
        pre_norm: The normalization before the blocks.
        pre_logits: The hidden layer before the classifier.
        head: The classifier, and the distillation token's: `head_dist`.
        projection: The full name of a classifier without bias, `(D, K)` if `projection_is_ours`.
        boxes: The layers of the heads of boxes, by our names.
        pool_probe: The full name of the attention pool's probe. The other names of the pool are
            prefixes: `pool_query` and the fused `pool_kv`, or `pool_qkv` as in `qkv`; `pool_out`,
            `pool_norm`, and the layers of its MLP, `pool_dense_0` and `pool_dense_1`.
        rotary: The layout of q and k in heads, a name in `LAYOUTS`.
        token_axes: The number of axes of `cls` and `dist`: 3 for `(1, 1, D)`, 1 for `(D,)`.
        position_axes: The number of axes of `positions`: 3 for `(1, N, D)`, 2 for `(N, D)`, 4 for
            `(1, h, w, D)`.
        linear_patches: Whether the projection of patches is a matrix of flat patches.
        first: The number of the first block in `block`.
        rms: Whether the project's code also normalizes by the root mean square.
    """

    patches: str
    block: str
    norm_0: str
    out: str
    dense_0: str
    dense_1: str
    norm: str
    norm_2: str = ""
    pooled_norm: str = ""
    qkv: str = ""
    query: str = ""
    key: str = ""
    value: str = ""
    query_bias: str = ""
    value_bias: str = ""
    query_norm: str = ""
    key_norm: str = ""
    attention_norm: str = ""
    scale_0: str = ""
    scale_1: str = ""
    gate: str = ""
    mlp_norm: str = ""
    parallel_bias: str = ""
    relative: str = ""
    shared_relative: str = ""
    frequencies: str = ""
    cls: str = ""
    dist: str = ""
    registers: str = ""
    positions: str = ""
    positions_of_blocks: str = ""
    registers_last: bool = False
    pre_norm: str = ""
    pre_logits: str = ""
    head: str = ""
    head_dist: str = ""
    projection: str = ""
    projection_is_ours: bool = False
    boxes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pool_probe: str = ""
    pool_query: str = ""
    pool_kv: str = ""
    pool_qkv: str = ""
    pool_out: str = ""
    pool_norm: str = ""
    pool_dense_0: str = ""
    pool_dense_1: str = ""
    rotary: str = "halves"
    token_axes: int = 3
    position_axes: int = 3
    linear_patches: bool = False
    first: int = 0
    rms: bool = False

    @classmethod
    def of(cls, text: str, **others: Any) -> Self:
        """Makes a row from `field=name` pairs and from fields that are not names."""
        return cls(**pairs(text), **others)

    def replaced(self, text: str = "", **others: Any) -> Self:
        """Returns the row with other names."""
        return dataclasses.replace(self, **pairs(text), **others)

    def of_block(self, number: int, name: str) -> str:
        """Returns the full name of a block's tensor or layer."""
        return f"{self.block.format(number + self.first)}{name}"


Shapes = dict[str, tuple[int, ...]]
LAYER_SCALE = 1e-5  # the initial value, which files do not give


def tensor_sizes(
    names: TensorNames, shapes: Shapes, classifier: str, patch_size=None, channels: int = 3
) -> dict:
    """Returns the arguments of `VisionTransformer` that follow from names and shapes.

    Args:
        names: The project's names for the tensors.
        shapes: `{name: shape}`.
        classifier: The input of the model's classifier.
        patch_size: The side of a patch, or its height and width, if the projection of patches is a
            matrix; None for a square.
        channels: The channels of the images, in the same case.

    Returns:
        Everything but the number of heads, the numerics, `rope` and `image_size`.
    """
    kernel = shapes[f"{names.patches}.weight"]
    if len(kernel) == 4:
        _, channels, *patch_size = kernel
    else:
        patch_size = _flat_patch(names.patches, kernel[1], patch_size, channels)
    return {
        "patch_size": tuple(patch_size),
        "channels": channels,
        "hidden_size": kernel[0],
        "num_layers": count_blocks(shapes, names.block.split("{}")[0]),
        "mlp_dim": _mlp_dim(names, shapes),
        "num_classes": _num_classes(names, shapes),
        "classifier": classifier,
        "representation_size": shapes.get(f"{names.pre_logits}.weight", (None,))[0],
        **_positions(names, shapes),
        **tensor_options(names, shapes),
    }


def _flat_patch(name, columns, size, channels):
    """Returns the height and width of patches that a matrix projects."""
    size = math.isqrt(columns // channels) if size is None else size
    size = (size, size) if isinstance(size, int) else tuple(size)
    if math.prod(size) * channels != columns:
        raise ValueError(
            f"The projection {name!r} must have a column for each number of a patch of "
            f"{size[0]}x{size[1]} pixels with {channels} channels. Received: {columns} columns"
        )
    return size


def _mlp_dim(names, shapes):
    return shapes[names.of_block(0, f"{names.dense_1}.weight")][1]


def _num_classes(names, shapes):
    if names.projection in shapes:
        return shapes[names.projection][1 if names.projection_is_ours else 0]
    return shapes.get(f"{names.head}.weight", (None,))[0]


def _positions(names, shapes):
    tables = {names.of_block(0, names.relative), names.shared_relative}
    kinds = ["learned"] if names.positions in shapes else []
    kinds += ["relative_2d"] if tables & shapes.keys() else []
    return {} if kinds == ["learned"] else {"position_embedding": "_".join(kinds) or "none"}


def tensor_options(names: TensorNames, shapes: Shapes) -> dict:
    """Returns the fields of `ViTOptions` that follow from tensors and are not the defaults."""
    has = lambda name, end="": bool(name) and names.of_block(0, f"{name}{end}") in shapes
    norm_0 = names.of_block(0, names.norm_0)
    options = {
        "qkv_bias": _qkv_bias(names, shapes, has),
        "qk_norm": has(names.query_norm, ".weight"),
        "attention_norm": has(names.attention_norm, ".weight"),
        "mlp": "swiglu" if _is_gated(names, shapes, has) else "gelu",
        "mlp_norm": has(names.mlp_norm, ".weight"),
        "norm": "rms" if names.rms and f"{norm_0}.bias" not in shapes else "layer",
        "layer_scale": LAYER_SCALE if has(names.scale_0) else None,
        "parallel": bool(names.parallel_bias),
        "num_registers": shapes[names.registers][1] if names.registers in shapes else 0,
        "pre_norm": f"{names.pre_norm}.weight" in shapes,
        "map_mlp_dim": _map_mlp_dim(names, shapes),
        "head_use_bias": names.projection not in shapes,
    }
    return ViTOptions(**options).changed()


def _map_mlp_dim(names, shapes):
    """Returns the hidden units of the attention pool's MLP if they differ from the blocks'."""
    units, *_ = shapes.get(f"{names.pool_dense_0}.weight", (None,))
    return None if units == _mlp_dim(names, shapes) else units


def _qkv_bias(names, shapes, has):
    if names.query:
        held = [has(part, ".bias") for part in (names.query, names.key)]
        return {(True, True): "all", (True, False): "qv"}.get(tuple(held), "none")
    if names.query_bias:
        return "qv" if has(names.query_bias) else "none"
    return "all" if has(names.qkv, "bias") else "none"


def _is_gated(names, shapes, has):
    if names.gate != names.dense_0:
        return has(names.gate, ".weight")
    rows, *_ = shapes.get(names.of_block(0, f"{names.gate}.weight"), (0,))
    return rows == 2 * _mlp_dim(names, shapes)


COVERS = ("class", "all", "patches")  # of positions, the likeliest first


def covered_positions(arguments: dict, positions: int, image_size=None, covers=COVERS) -> dict:
    """Returns the image size and the tokens that the learned positions cover.

    Args:
        arguments: The other arguments of the model.
        positions: The number of learned positions; 0 for a model without any.
        image_size: Height and width from a configuration, or None.
        covers: The values of `ViTOptions.position_cover` to try.

    Returns:
        `image_size`, unless unknown, and the options `position_cover` and `crop_to_patches`, unless
        they are the defaults.

    Raises:
        ValueError: The configuration contradicts the number of positions.
    """
    options = ViTOptions.among(arguments)
    prefix, patch_size = Prefix.of(arguments["classifier"], options), arguments["patch_size"]
    slots = {cover: prefix.positions(cover) for cover in covers}
    extra = None
    if image_size is None:
        extra = next((k for k in slots.values() if square_side(positions - k)), None)
        if extra is None:
            return {}
        side = square_side(positions - extra)
        image_size = tuple(side * patch for patch in patch_size)
    elif positions:
        extra = positions - math.prod(size // patch for size, patch in zip(image_size, patch_size))
        if extra not in slots.values():
            raise ValueError(
                f"Images of {image_size} pixels, as the configuration states, have "
                f"{positions - extra} patches of {patch_size} after {prefix.count} other tokens. "
                f"Received: {positions} positions"
            )
    size = tuple(image_size)
    cover = next((name for name, count in slots.items() if count == extra), "all")
    changed: dict[str, Any] = {"image_size": size}
    if slots[cover] != prefix.count:
        changed["position_cover"] = cover
    if any(side % patch for side, patch in zip(size, patch_size)):
        changed["crop_to_patches"] = True
    return changed


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


def resnet_sizes(
    shapes: Mapping[str, tuple[int, ...]], root: str, first: str = "conv1"
) -> dict[str, Any]:
    """Returns a ResNet's arguments from the names and shapes of its convolutions."""
    *_, channels, width = shapes[root]
    return {
        "resnet_layers": count_units(shapes, rf"^block(\d+)/unit(\d+)/{first}/"),
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
