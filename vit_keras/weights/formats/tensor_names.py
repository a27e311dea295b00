"""PyTorch projects' names for the tensors of a plain Vision Transformer.

A `TensorNames` is one row of such a table. It gives links, and a model's sizes and options from the
shapes in a file. PyTorch's layouts are `(out, in)` matrices, `(out, in, h, w)` convolutions and
fused projections.
"""

import collections
import dataclasses
import itertools
import math
import re
import types
from collections.abc import Callable, Collection
from typing import Any, Self

import numpy as np

from vit_keras import variants
from vit_keras.layers.common import Prefix, ViTOptions, pair
from vit_keras.weights.formats.base import Link, arranged, same, stacked


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


ATTENTION, POOL = "MultiHeadDotProductAttention_1", "MAPHead_0/MultiHeadDotProductAttention_0"
FREQUENCIES, RELATIVE = f"{ATTENTION}/rotary/frequencies", f"{ATTENTION}/relative_2d/table"
# Our variables and layers, those of blocks without `encoderblock_{i}/`, and the fields of
# `TensorNames` with their names.
FIELDS = pairs(
    # The stem, and that of a text tower.
    "embedding=patches cls/cls=cls dist/cls=dist registers/registers=registers "
    "pre_norm=pre_norm text_embedding=patches text_embedding/pos_embedding=positions "
    # A block.
    f"LayerNorm_0=norm_0 {ATTENTION}/query=query {ATTENTION}/key=key {ATTENTION}/value=value "
    f"{ATTENTION}/query_norm=query_norm {ATTENTION}/key_norm=key_norm {FREQUENCIES}=frequencies "
    f"{ATTENTION}/norm=attention_norm {ATTENTION}/out=out LayerScale_0/gamma=scale_0 "
    "LayerNorm_2=norm_2 MlpBlock_3/gate=gate MlpBlock_3/Dense_0=dense_0 MlpBlock_3/norm=mlp_norm "
    "MlpBlock_3/Dense_1=dense_1 LayerScale_1/gamma=scale_1 "
    # What follows the blocks.
    f"encoder_norm=norm MAPHead_0/probe=pool_probe {POOL}/query=pool_query {POOL}/key=pool_kv "
    f"{POOL}/value=pool_kv {POOL}/out=pool_out MAPHead_0/LayerNorm_0=pool_norm "
    "MAPHead_0/MlpBlock_0/Dense_0=pool_dense_0 MAPHead_0/MlpBlock_0/Dense_1=pool_dense_1 "
    "pre_logits=pre_logits head_dist=head_dist head=head projection=head"
)
DEFAULTS: dict[str, Any] = {  # of all fields
    **dict.fromkeys(FIELDS.values(), ""),
    **pairs("block= pooled_norm= qkv= pool_qkv= query_bias= value_bias= parallel_bias= relative="),
    **pairs("shared_relative= positions_of_blocks= projection= rotary=halves"),
    **dict.fromkeys(("projection_is_ours", "registers_last", "linear_patches", "rms"), False),
    "boxes": {},
    "spellings": (),
    "token_axes": 3,
    "position_axes": 3,
    "first": 0,
}


Shapes = dict[str, tuple[int, ...]]
LAYER_SCALE = 1e-5  # the initial value, which files do not give
ENDS = ("", "weight", ".weight", "/0")  # of tensors' names behind those in a row


class TensorNames(types.SimpleNamespace):
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
        spellings: Fields that replace these, each in files that have one of its names.
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

    @classmethod
    def of(cls, text: str, **others: Any) -> Self:
        """Makes a row from `field=name` pairs and from fields that are not names."""
        return cls(**DEFAULTS).replaced(text, **others)

    def replaced(self, text: str = "", **others: Any) -> Self:
        """Returns the row with other names."""
        return type(self)(**{**vars(self), **pairs(text), **others})

    def of_block(self, number: int, name: str) -> str:
        """Returns the full name of a block's tensor or layer."""
        return f"{self.block.format(number + self.first)}{name}"

    def among(self, held: Collection[str]) -> Self:
        """Returns the row in the spelling of a file with these tensors."""
        changes: dict[str, Any] = {}
        for spelling in self.spellings:
            layers = [name for name in spelling.values() if name and isinstance(name, str)]
            starts = (f"{start}{name}" for name in layers for start in ("", self.of_block(0, "")))
            if any(f"{start}{end}" in held for start in starts for end in ENDS):
                changes |= spelling
        return self.replaced(**changes)

    def links(self, arch: Any, held: Collection[str] | None = None) -> list[Link]:
        """Links the variables of an image or a text tower to the project's tensors.

        Variables without a name get no link.

        Args:
            arch: The architecture of the model.
            held: The names of the tensors in a file to read; None to write.
        """
        to_write = {
            self.of_block(0, self.gate): arch.options.mlp == "swiglu",
            self.head_dist: arch.classifier == "distilled",
        }
        names = self.among([k for k, v in to_write.items() if v] if held is None else held)
        named, links = _names(arch, names), []
        tensors: dict[str, list[str]] = {}
        for path in arch.paths:
            block = re.match(r"encoderblock_(\d+)/", path)
            ours = path.removeprefix(block[0]) if block else path
            prefix = names.of_block(int(block[1]), "") if block and ours != FREQUENCIES else ""
            layer, _, leaf = ours.rpartition("/")
            theirs = named.get(ours, "")
            if ours not in named and named.get(layer) and leaf in LEAVES:
                theirs = f"{named[layer]}.{LEAVES[leaf]}"
            if ours == RELATIVE and names.relative:
                tables = [f"{prefix}{names.relative}", *filter(None, [names.shared_relative])]
                kept = tables[:1] if held is None else [name for name in tables if name in held]
                links.append(_sum(tuple(kept or tables), path))
            elif theirs:
                tensors.setdefault(f"{prefix}{theirs}", []).append(path)
        return links + [_tensor_link(arch, names, *item) for item in tensors.items()]

    def sizes(self, shapes: Shapes, classifier: str, patch_size=None, channels: int = 3) -> dict:
        """Returns the arguments of `VisionTransformer` that follow from names and shapes.

        Args:
            shapes: `{name: shape}`.
            classifier: The input of the model's classifier.
            patch_size: The side of a patch, or its height and width, if the projection of patches
                is a matrix; None for a square.
            channels: The channels of the images, in the same case.

        Returns:
            Everything but the number of heads, the numerics, `rope` and `image_size`.
        """
        names = self.among(shapes)
        kernel = shapes[f"{names.patches}.weight"]
        if len(kernel) == 4:
            _, channels, *patch_size = kernel
        elif patch_size is None:
            patch_size = math.isqrt(kernel[1] // channels)
        num_classes = shapes.get(f"{names.head}.weight", (None,))[0]
        if names.projection in shapes:
            num_classes = shapes[names.projection][1 if names.projection_is_ours else 0]
        tables = {names.of_block(0, names.relative), names.shared_relative}
        kinds = ["learned"] if names.positions in shapes else []
        kinds += ["relative_2d"] if tables & shapes.keys() else []
        return {
            "patch_size": pair(patch_size, "patch_size"),
            "channels": channels,
            "hidden_size": kernel[0],
            "num_layers": count_blocks(shapes, names.block.split("{}")[0]),
            "mlp_dim": shapes[names.of_block(0, f"{names.dense_1}.weight")][1],
            "num_classes": num_classes,
            "classifier": classifier,
            "representation_size": shapes.get(f"{names.pre_logits}.weight", (None,))[0],
            **({"position_embedding": "_".join(kinds) or "none"} if kinds != ["learned"] else {}),
            **names.options(shapes),
        }

    def options(self, shapes: Shapes) -> dict:
        """Returns the fields of `ViTOptions` that follow from tensors and are not the defaults."""
        has = lambda name, end="": bool(name) and self.of_block(0, f"{name}{end}") in shapes
        rows = lambda name: shapes.get(f"{name}.weight", (None,))[0]
        mlp_dim = shapes[self.of_block(0, f"{self.dense_1}.weight")][1]
        is_gated = has(self.gate, ".weight")
        if self.gate == self.dense_0:
            is_gated = rows(self.of_block(0, self.gate)) == 2 * mlp_dim
        query_bias = self.query_bias or (f"{self.query}.bias" if self.query else f"{self.qkv}bias")
        without_key = bool(self.query_bias or (self.query and not has(self.key, ".bias")))
        options: dict[str, Any] = {
            "qkv_bias": "none" if not has(query_bias) else "qv" if without_key else "all",
            "qk_norm": has(self.query_norm, ".weight"),
            "attention_norm": has(self.attention_norm, ".weight"),
            "mlp": "swiglu" if is_gated else "gelu",
            "mlp_norm": has(self.mlp_norm, ".weight"),
            "norm": "rms" if self.rms and not has(self.norm_0, ".bias") else "layer",
            "layer_scale": LAYER_SCALE if has(self.scale_0) else None,
            "parallel": bool(self.parallel_bias),
            "num_registers": shapes[self.registers][1] if self.registers in shapes else 0,
            "pre_norm": f"{self.pre_norm}.weight" in shapes,
            "map_mlp_dim": units if (units := rows(self.pool_dense_0)) != mlp_dim else None,
            "head_use_bias": self.projection not in shapes,
        }
        return ViTOptions(**options).changed()


# PyTorch's axes and ours, by the ends of paths; the first one counts. Other variables are the same.
PATTERNS = {
    r"(embedding|conv\w*)/kernel": "o i y x -> y x i o",
    r"(query|key|value)/kernel": "(h d) w -> w h d",
    r"(query|key|value)/bias": "(h d) -> h d",
    r"out/kernel": "w (h d) -> h d w",
    r"kernel": "o i -> i o",
}


def in_pytorch(theirs: str, ours: str, num_heads: int = 1) -> Link:
    """Links one tensor in PyTorch's layout to a variable, of `num_heads` heads if it has heads."""
    for end, pattern in PATTERNS.items():
        if re.search(f"{end}$", ours):
            return arranged(theirs, ours, pattern, h=num_heads)
    return same(theirs, ours)


# What PyTorch calls the variables of a layer.
LEAVES = pairs("kernel=weight bias=bias gamma=weight beta=bias scale=weight token_embedding=weight")
PROJECTIONS = ("query", "key", "value")


def _names(arch, names: TensorNames) -> dict[str, str]:
    """Returns the project's names for our variables and layers, as in `FIELDS`."""
    held = {**names.boxes, **{ours: getattr(names, field) for ours, field in FIELDS.items()}}
    for layer, fused in ((ATTENTION, names.qkv), (POOL, names.pool_qkv)):
        for name, leaf in itertools.product(PROJECTIONS if fused else (), ("kernel", "bias")):
            held[f"{layer}/{name}/{leaf}"] = f"{fused}{LEAVES[leaf]}"
    if names.query_bias:
        biases = (names.query_bias, "", names.value_bias)
        held |= {f"{ATTENTION}/{name}/bias": bias for name, bias in zip(PROJECTIONS, biases)}
    if arch.options.parallel and arch.options.qkv_bias == "none":
        held["MlpBlock_3/Dense_0/bias"] = names.parallel_bias
    if arch.classifier == "gap_norm" and names.pooled_norm:
        held["encoder_norm"] = names.pooled_norm
    for layer in ("head", "projection"):
        if names.projection and f"{layer}/bias" not in arch.paths:
            held[f"{layer}/kernel"] = names.projection
    has_order = not names.registers_last or arch.options.position_cover == "all"
    if not arch.position_embedding.startswith("learned") or not has_order:
        return held
    first, *later = [path for path in arch.paths if path.endswith("/pos_embedding")]
    return {**held, first: names.positions, **dict.fromkeys(later, names.positions_of_blocks)}


def _sum(theirs, path):
    """Links tensors to the variable that is their sum; all of them are written as it."""
    return Link(theirs, (path,), lambda *x: (sum(x),), lambda x: (x,) * len(theirs))


def _tensor_link(arch, names, theirs, paths):
    """Links one tensor to a variable, or to several that it holds one after another."""
    paths = sorted(paths, key=lambda path: "/MultiHead" in path)  # after a parallel block's MLP
    links = [_link(arch, names, theirs, path) for path in paths]
    if len(links) == 1:
        return links[0]
    if [path.split("/")[-2] for path in paths] == ["query", "value"]:  # the file has a 0 for keys
        zero = np.zeros(arch.hidden_size, "float32")
        links.insert(1, Link((), (), lambda x: (), lambda: (zero,)))
        paths.insert(1, paths[0])
    sizes = {"kernel": arch.hidden_size, "bias": arch.hidden_size}
    lengths = [
        arch.mlp_dim if "/MlpBlock" in path else sizes.get(path.split("/")[-1], 1) for path in paths
    ]
    return stacked(theirs, links, lengths, axis=1 if theirs == names.frequencies else 0)


# Of query and key, and of their normalizations, the channels of a head have a special order.
ROTATED = ("query", "key", "query_norm", "key_norm")


def _link(arch, names, theirs, path):
    """Links one variable to its part of a tensor."""
    *_, layer, leaf = path.split("/")
    if leaf == "frequencies":  # (2, L, H, d/2), columns first
        return Link((theirs,), (path,), lambda f: (f[::-1, 0],), lambda f: (f[::-1, None],))
    if leaf == "cls":
        return _tokens(theirs, path, {1: (-1,), 3: (1, 1, -1)}[names.token_axes])
    if layer.startswith("posembed_"):
        width = arch.hidden_size
        shapes = {2: (-1, width), 3: (1, -1, width), 4: (1, *arch.grid, width)}
        is_first = theirs == names.positions
        link = _tokens(theirs, path, shapes[names.position_axes] if is_first else (1, 1, -1, width))
        return _reordered(arch, link) if names.registers_last else link
    if path == "embedding/kernel" and names.linear_patches:
        height, width = arch.patch_size
        return arranged(theirs, path, "o (y x i) -> y x i o", y=height, x=width)
    if theirs == names.projection and names.projection_is_ours:
        return same(theirs, path)
    heads = arch.options.map_heads if path.startswith(POOL) else None
    link = in_pytorch(theirs, path, heads or arch.num_heads)
    is_rotated = path.startswith("encoderblock_") and layer in ROTATED
    if not is_rotated or arch.options.rope is None:
        return link
    order = LAYOUTS[names.rotary](arch.hidden_size // arch.num_heads)
    back = np.argsort(order)
    return dataclasses.replace(
        link,
        read=lambda x: (link.read(x)[0][..., order],),
        write=lambda x: link.write(x[..., back]),
    )


def _tokens(theirs, path, shape):
    """Links tokens or positions `(1, N, D)`, which have fewer or more axes in some projects."""
    read = lambda x: (x.reshape(1, -1, x.shape[-1]),)
    return Link((theirs,), (path,), read, lambda x: (x.reshape(shape),))


def _reordered(arch, link):
    """Links positions of a file in which registers come after patches, not before them."""
    start, count = len(arch.prefix.names), arch.prefix.num_registers
    roll = lambda x, by: np.concatenate([x[:, :start], np.roll(x[:, start:], by, axis=1)], axis=1)
    return dataclasses.replace(
        link,
        read=lambda x: (roll(link.read(x)[0], count),),
        write=lambda x: link.write(roll(x, -count)),
    )


COVERS = ("class", "all", "patches")  # of positions, the likeliest first


def covered_positions(arguments: dict, positions: int, image_size=None, covers=COVERS) -> dict:
    """Returns the image size and the tokens that the learned positions cover.

    Args:
        arguments: The other arguments of the model.
        positions: The number of learned positions; 0 for a model without any.
        image_size: Height and width from a configuration; None guesses a square grid.
        covers: The values of `ViTOptions.position_cover` to try.

    Returns:
        `image_size`, unless unknown, and the options `position_cover` and `crop_to_patches`, unless
        they are the defaults.

    Raises:
        ValueError: The configuration contradicts the number of positions.
    """
    prefix = Prefix.of(arguments["classifier"], ViTOptions.among(arguments))
    stages, patch_size = arguments.get("resnet_layers"), arguments["patch_size"]
    stride = 1 if stages is None else variants.stem_stride(stages)  # of a hybrid's stem
    slots = {cover: prefix.positions(cover) for cover in covers}
    extra = None
    if image_size is None:
        extra = next((k for k in slots.values() if square_side(positions - k)), None)
        if extra is None:
            return {}
        image_size = [square_side(positions - extra) * patch * stride for patch in patch_size]
    elif positions:
        extra = positions - math.prod(size // patch for size, patch in zip(image_size, patch_size))
        if extra not in slots.values():
            raise ValueError(
                f"Images of {image_size} pixels, as the configuration states, have "
                f"{positions - extra} patches of {patch_size} after {prefix.count} other tokens. "
                f"Received: {positions} positions"
            )
    cover = next((name for name, count in slots.items() if count == extra), "all")
    changed: dict[str, Any] = {"image_size": tuple(image_size)}
    if prefix.positions(cover) != prefix.count:
        changed["position_cover"] = cover
    if any(side % patch for side, patch in zip(image_size, patch_size)):
        changed["crop_to_patches"] = True
    return changed


def count_blocks(names, prefix: str) -> int:
    """Counts the blocks called `{prefix}{i}.…` or `{prefix}{i}/…` in `names`."""
    pattern = re.compile(re.escape(prefix) + r"(\d+)[./]")
    return len({match[1] for match in map(pattern.match, names) if match})


def resnet_sizes(shapes: Shapes, root: str, units: str, axes: tuple[int, int]) -> dict[str, Any]:
    """Returns a ResNet's arguments from the names and shapes of its convolutions.

    Args:
        shapes: `{name: shape}`.
        root: The name of the first kernel.
        units: A regular expression for the names of a unit's tensors, with two groups, the numbers
            of the stage and of the unit.
        axes: The axes of the first kernel's channels in and out.
    """
    matches = filter(None, map(re.compile(units).match, shapes))
    counts = collections.Counter(int(stage) for stage, _ in {match.groups() for match in matches})
    channels, width = (shapes[root][axis] for axis in axes)
    return {
        "resnet_layers": tuple(count for _, count in sorted(counts.items())),
        "resnet_width": width / variants.ROOT_WIDTH,
        "channels": channels,
    }


def square_side(positions: int) -> int | None:
    """Returns the side of a square grid of `positions` patches, or None without such a grid."""
    side = math.isqrt(max(positions, 0))
    return side if side * side == positions and side else None
