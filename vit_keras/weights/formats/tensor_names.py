"""Links between tensors and variables, and PyTorch projects' names for the tensors of a plain ViT.

A `TensorNames` is one project's names. It provides the links, and derives a model's sizes and
options from the shapes in a file. PyTorch's layouts are `(out, in)` matrices, `(out, in, h, w)`
convolutions and fused projections.
"""

import dataclasses
import itertools
import math
import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Self

import numpy as np

from vit_keras.layers.common import ViTOptions, pair
from vit_keras.weights.formats import base
from vit_keras.weights.formats.base import ATTENTION, FREQUENCIES, POOL, Shapes, count_blocks, pairs


@dataclasses.dataclass(frozen=True)
class Link:
    """Ties tensors of a file to variables of a model.

    Attributes:
        theirs: Canonical names of tensors in the file.
        ours: Paths of variables in the model.
        read: Takes the arrays of `theirs` and returns those of `ours`, in order.
        write: The inverse of `read`.
        unpadded: Whether shapes with and without leading ones are equivalent.
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    read: Callable[..., tuple[np.ndarray, ...]]
    write: Callable[..., tuple[np.ndarray, ...]]
    unpadded: bool = False

    @property
    def path(self) -> str:
        """The path of the first variable, or "" for tensors that no variable holds."""
        return self.ours[0] if self.ours else ""

    def fits(self, shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
        """Whether a tensor with `shape` can be read as one with the written shape `expected`."""
        start = lambda sizes: itertools.dropwhile(lambda size: self.unpadded and size == 1, sizes)
        return tuple(start(shape)) == tuple(start(expected))

    def shapes(self, variables: Mapping) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the tensors that `write` makes of a model's variables."""
        blank = [np.broadcast_to(np.float32(0), variables[path].shape) for path in self.ours]
        return {name: x.shape for name, x in zip(self.theirs, self.write(*blank))}

    def renamed(self, rename: Callable[[str], str]) -> Self:
        """Returns the link to tensors of other names."""
        return dataclasses.replace(self, theirs=tuple(map(rename, self.theirs)))

    def mapped(self, read: Callable, write: Callable) -> Self:
        """Returns the link to variables whose arrays `read` makes and `write` converts back."""
        return dataclasses.replace(
            self,
            read=lambda *x: tuple(map(read, self.read(*x))),
            write=lambda *x: self.write(*map(write, x)),
        )


def misfits(links: Iterable[Link], shapes: Mapping, variables: Mapping, sized: Collection[str]):
    """Returns a line for each tensor that is missing in a file, or that has another shape there.

    Shapes are given by canonical names. The tensors of variables in `sized` may have other shapes.
    """
    faults = []
    for link in links:
        ours = ", ".join(link.ours)
        absent = [name for name in link.theirs if name not in shapes]
        faults += [f"missing in the file: {name} -> {ours}" for name in absent]
        if absent or link.path in sized:
            continue
        faults += [
            f"{name} -> {ours} is {shapes[name]} in the file, {expected} in the model"
            for name, expected in link.shapes(variables).items()
            if not link.fits(shapes[name], expected)
        ]
    return faults


BATCH_NUMBERS = 2**23  # of tensors to read together; a larger tensor is read with fewer others


def read_links(links: Iterable[Link], file: Any, made: Mapping = types.MappingProxyType({})):
    """Yields links, the paths of their variables, and new values.

    Args:
        links: The links.
        file: An open `WeightFile`.
        made: The values of some links, by the path of the first variable.
    """
    links = list(links)
    counts = (sum(math.prod(file.shapes[name]) for name in link.theirs) for link in links)
    ends = zip(itertools.accumulate(counts), links)
    for _, batch in itertools.groupby(ends, lambda pair: pair[0] // BATCH_NUMBERS):
        few = [link for _, link in batch]
        theirs = [name for link in few if link.path not in made for name in link.theirs]
        arrays = file.tensors.read_all(dict.fromkeys(file.names[name] for name in theirs))
        for link in few:
            values = made.get(link.path)
            if values is None:
                values = link.read(*(arrays[file.names[name]] for name in link.theirs))
            yield from ((link, *value) for value in zip(link.ours, values))
        del arrays, values  # before the next ones are read


def assign(links: Iterable[Link], file: Any, made: Mapping, variables: Mapping) -> None:
    """Assigns the variables of links; the arguments are as in `read_links`."""
    for _, path, array in read_links(links, file, made):
        # The 0 of `zeros` alone has another shape.
        variables[path].assign(np.ascontiguousarray(np.broadcast_to(array, variables[path].shape)))


def unchanged(x: np.ndarray) -> np.ndarray:
    return x


def single(theirs: str, ours: str, read=unchanged, write=unchanged, unpadded: bool = False) -> Link:
    """Links one tensor to one variable, by functions for the two directions if layouts differ."""
    return Link((theirs,), (ours,), lambda x: (read(x),), lambda x: (write(x),), unpadded)


def zeros(ours: str) -> Link:
    """Zeroes a variable that files leave out, and refuses to write any other value."""

    def write(x):
        if x.any():
            raise ValueError(
                f"{ours!r} must be 0, because the format has no place for it. Received: a model in "
                "which it is not; save it as .keras or .weights.h5"
            )
        return ()

    return Link((), (ours,), lambda: (np.zeros((), "float32"),), write)


def constant(name: str, value, rule: str = "") -> Link:
    """Writes a tensor that models do not have; with a `rule`, reading refuses another value."""
    value = np.asarray(value, "float32")

    def read(held):
        if rule and not np.array_equal(held, value):
            raise ValueError(f"{rule}. Received: {held}")
        return ()

    return Link((name,), (), read, lambda: (value,))


def unread(names: Iterable[str]) -> Link:
    """Accounts for tensors of a file that models do not have."""
    return Link(tuple(names), (), lambda *x: (), lambda: ())


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
        dense_0: The first layer of the MLP, or the layer of values in SwiGLU.
        dense_1: The last layer of the MLP.
        norm: The normalization after the blocks.
        pooled_norm: The normalization after a mean; empty for `norm`.
        qkv: What precedes "weight" and "bias" of the fused projection of query, key and value, such
            as "attn.qkv." or "attn.in_proj_"; a parallel block's also holds the MLP, before them.
        query: The prefix of a separate query projection; `key` and `value` likewise.
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
        cls: The full name of the class token; `dist`, `registers` and `positions` likewise for the
            distillation token, the registers and the position embeddings.
        positions_of_blocks: The full name of the positions that are added before all blocks but the
            first, `(L - 1, 1, N, D)`.
        registers_last: Whether the positions of the registers follow those of the patches.
        pre_norm: The normalization before the blocks.
        pre_logits: The hidden layer before the classifier.
        head: The classifier; `head_dist` is the distillation token's.
        projection: The full name of a classifier without bias, `(D, K)` if `projection_is_ours`.
        others: More layers by our names, such as those of the heads of boxes.
        spellings: Sets of fields that replace these, each in files with one of its names.
        pool_probe: The full name of the attention pool's probe. The other names of the pool are
            prefixes: `pool_query` and the fused `pool_kv`, or `pool_qkv` as in `qkv`; `pool_out`,
            `pool_norm`, and the layers of its MLP, `pool_dense_0` and `pool_dense_1`.
        rotary: The layout of q and k in heads, a name in `LAYOUTS`.
        token_axes: The number of axes of `cls` and `dist`: 3 for `(1, 1, D)`, 1 for `(D,)`.
        position_axes: The number of axes of `positions`: 3 for `(1, N, D)`, 2 for `(N, D)`, 4 for
            `(1, h, w, D)`.
        linear_patches: Whether the projection of patches is a matrix for flattened patches.
        first: The number of the first block in `block`.
        rms: Whether the project's code also normalizes by the root mean square.
    """

    @classmethod
    def of(cls, text: str, **others: Any) -> Self:
        """Makes a row from `field=name` pairs and from fields that are not names."""
        return cls(**base.DEFAULTS).replaced(text, **others)

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
            if ours == base.RELATIVE and names.relative:
                tables = [f"{prefix}{names.relative}", *filter(None, [names.shared_relative])]
                kept = tables[:1] if held is None else [name for name in tables if name in held]
                links.append(_sum(kept or tables, path))
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
            **({"position_embedding_at": "every"} if names.positions_of_blocks in shapes else {}),
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


# What PyTorch calls the variables of a layer.
LEAVES = pairs("kernel=weight bias=bias gamma=weight beta=bias scale=weight token_embedding=weight")
PROJECTIONS = ("query", "key", "value")


def _names(arch, names: TensorNames) -> dict[str, str]:
    """Returns the project's names for our variables and layers, as in `FIELDS`."""
    held = {**names.others, **{ours: getattr(names, field) for ours, field in base.FIELDS.items()}}
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
    """Links tensors to the variable that is their sum; writing gives each of them its values."""
    return Link((*theirs,), (path,), lambda *x: (sum(x),), lambda x: (x,) * len(theirs))


def _tensor_link(arch, names, theirs, paths):
    """Links one tensor to a variable, or to several that it holds one after another."""
    paths = sorted(paths, key=lambda path: "/MultiHead" in path)  # after a parallel block's MLP
    links = [_link(arch, names, theirs, path) for path in paths]
    if len(links) == 1:
        return links[0]
    if [path.split("/")[-2] for path in paths] == ["query", "value"]:  # the file has a 0 for keys
        zero = np.zeros(arch.hidden_size, "float32")
        links.insert(1, Link((), (), lambda x: (), lambda: (zero,)))
    axis = 1 if theirs == names.frequencies else 0
    size = arch.hidden_size if paths[0].endswith(("kernel", "bias")) else 1
    ends = np.cumsum([arch.mlp_dim if "/MlpBlock" in part.path else size for part in links])[:-1]

    def read(x):
        pieces = zip(links, np.split(x, ends, axis))
        return tuple(value for part, piece in pieces for value in part.read(piece))

    def write(*arrays):
        held = dict(zip(paths, arrays))
        pieces = [part.write(*(held[path] for path in part.ours)) for part in links]
        return (np.concatenate([piece for (piece,) in pieces], axis),)

    return Link((theirs,), tuple(paths), read, write)


# The layers in which the channels of a head have a special order.
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
    if theirs == names.projection and names.projection_is_ours:
        return single(theirs, path)
    heads = (path.startswith(POOL) and arch.options.map_heads) or arch.num_heads
    link = single(theirs, path, *_layout(arch, layer, leaf, heads, names.linear_patches))
    if arch.options.rope is None or not path.startswith("encoderblock_") or layer not in ROTATED:
        return link
    order = base.LAYOUTS[names.rotary](arch.hidden_size // arch.num_heads)
    return link.mapped(lambda x: x[..., order], lambda x: x[..., np.argsort(order)])


def _layout(arch, layer, leaf, heads, linear_patches):
    """Returns functions from PyTorch's layout, which is `(out, in)`, to ours and back."""
    flat = lambda x: x.reshape(-1, x.shape[-1]).T
    if layer in PROJECTIONS and leaf == "bias":
        return lambda x: x.reshape(heads, -1), np.ravel
    if leaf != "kernel":
        return unchanged, unchanged
    if layer in PROJECTIONS:  # (D, H, d)
        return lambda x: x.T.reshape(x.shape[1], heads, -1), lambda x: x.reshape(len(x), -1).T
    if layer == "out":  # (H, d, D)
        return lambda x: x.T.reshape(heads, -1, len(x)), flat
    if layer == "embedding" and linear_patches:  # (h, w, C, D)
        return lambda x: x.T.reshape(*arch.patch_size, -1, len(x)), flat
    if layer == "embedding" or layer.startswith("conv"):  # (D, C, h, w)
        return lambda x: x.transpose(2, 3, 1, 0), lambda x: x.transpose(3, 2, 0, 1)
    return np.transpose, np.transpose


def _tokens(theirs, ours, shape):
    """Links tokens or positions `(1, N, D)`, which have fewer or more axes in some projects."""
    read = lambda x: x.reshape(1, -1, x.shape[-1])
    return single(theirs, ours, read, lambda x: x.reshape(shape))


def _reordered(arch, link):
    """Links positions of a file in which registers come after patches, not before them."""
    start, count = len(arch.prefix.names), arch.prefix.num_registers
    roll = lambda x, by: np.concatenate([x[:, :start], np.roll(x[:, start:], by, axis=1)], axis=1)
    return link.mapped(lambda x: roll(x, count), lambda x: roll(x, -count))
