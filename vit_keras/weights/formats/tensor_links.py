"""Links of tensors and variables, and those of a plain Vision Transformer in PyTorch.

PyTorch's layouts are `(out, in)` matrices, `(out, in, h, w)` convolutions and fused projections.
"""

import dataclasses
import itertools
import math
import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from vit_keras.weights.formats.tensor_names import (
    ATTENTION,
    FIELDS,
    FREQUENCIES,
    LAYOUTS,
    POOL,
    RELATIVE,
    TensorNames,
    pairs,
)


@dataclasses.dataclass(frozen=True)
class Link:
    """Ties tensors of a file to variables of a model.

    Attributes:
        theirs: Canonical names of tensors in the file.
        ours: Paths of variables in the model.
        read: Takes the arrays of `theirs` and returns those of `ours`, in order.
        write: The reverse of `read`.
        unpadded: Whether shapes with and without leading ones are equivalent.
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    read: Callable[..., tuple[np.ndarray, ...]]
    write: Callable[..., tuple[np.ndarray, ...]]
    unpadded: bool = False

    def fits(self, shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
        """Whether a tensor with `shape` can be read as one with the written shape `expected`."""
        start = lambda sizes: itertools.dropwhile(lambda size: self.unpadded and size == 1, sizes)
        return tuple(start(shape)) == tuple(start(expected))


def misfits(
    links: Iterable[Link],
    shapes: Mapping[str, tuple[int, ...]],
    variables: Mapping[str, keras.Variable],
    sized: Collection[str] = (),
) -> list[str]:
    """Returns a line for each tensor that is missing in a file, or that has another shape there.

    Args:
        links: The links.
        shapes: The shapes in the file, by canonical names.
        variables: The variables of the model, by paths.
        sized: Paths of variables whose tensors may have other shapes.
    """
    faults = []
    for link in links:
        ours = ", ".join(link.ours)
        absent = [name for name in link.theirs if name not in shapes]
        faults += [f"missing in the file: {name} -> {ours}" for name in absent]
        if absent or link.ours[0] in sized:
            continue
        blank = [np.broadcast_to(np.float32(0), variables[path].shape) for path in link.ours]
        faults += [
            f"{name} -> {ours} is {shapes[name]} in the file, {expected.shape} in the model"
            for name, expected in zip(link.theirs, link.write(*blank))
            if not link.fits(shapes[name], expected.shape)
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
        theirs = [name for link in few if link.ours[0] not in made for name in link.theirs]
        arrays = file.tensors.read_all(dict.fromkeys(file.names[name] for name in theirs))
        for link in few:
            values = made.get(link.ours[0])
            if values is None:
                values = link.read(*(arrays[file.names[name]] for name in link.theirs))
            yield from ((link, *value) for value in zip(link.ours, values))
        del arrays, values  # before the next ones are read


def assign(links: Iterable[Link], file: Any, made: Mapping, variables: Mapping) -> None:
    """Assigns the variables of links; the arguments are as in `read_links`."""
    for _, path, array in read_links(links, file, made):
        shape = variables[path].shape  # only its size differs: the file leaves out a 0
        variables[path].assign(np.ascontiguousarray(np.broadcast_to(array, shape)))


def same(theirs: str, ours: str) -> Link:
    """Links one tensor with the same layout on both sides."""
    return Link((theirs,), (ours,), lambda x: (x,), lambda x: (x,))


def zeros(ours: str) -> Link:
    """Sets a variable that the file leaves out to zero."""
    return Link((), (ours,), lambda: (np.zeros((), "float32"),), lambda x: ())


def constant(name: str, value) -> Link:
    """Writes a tensor that the project's code needs but models do not have."""
    return Link((name,), (), lambda x: (), lambda: (np.asarray(value, "float32"),))


def beside(link: Link, names: Sequence[str], write: Callable[..., Iterable]) -> Link:
    """Adds tensors that reading ignores; `write` makes them from the link's first array."""
    if not names:
        return link
    both = lambda *x: (*(theirs := link.write(*x)), *write(theirs[0]))
    read = lambda *x: link.read(*x[: len(link.theirs)])
    return Link((*link.theirs, *names), link.ours, read, both)


def arranged(theirs: str, ours: str, pattern: str, **sizes: int) -> Link:
    """Links one tensor whose axes are split and rearranged, in the notation of einops.

    Args:
        theirs: The name of the tensor.
        ours: The path of the variable.
        pattern: The axes in the file and in the model, such as "(h d) w -> w h d".
        **sizes: The sizes of axes in parentheses. One size in each pair may be left out.
    """
    left, right = pattern.split(" -> ")
    groups = [(inner or axis).split() for inner, axis in re.findall(r"\(([^)]*)\)|(\w+)", left)]
    names = [axis for group in groups for axis in group]
    order = [names.index(axis) for axis in right.split()]

    def read(x):
        held: dict[str, int] = {}
        for group, size in zip(groups, x.shape):
            others = math.prod(sizes.get(axis, 1) for axis in group)
            held |= {axis: sizes.get(axis, size // others) for axis in group}
        return (x.reshape([held[axis] for axis in names]).transpose(order),)

    def write(x):
        x = x.transpose(np.argsort(order))
        held = dict(zip(names, x.shape))
        return (x.reshape([math.prod(held[axis] for axis in group) for group in groups]),)

    return Link((theirs,), (ours,), read, write)


def stacked(theirs: str, links: list[Link], sizes: list[int], axis: int) -> Link:
    """Links one tensor that holds those of several links, of `sizes` along an axis."""
    ends = np.cumsum(sizes)[:-1]

    def read(x):
        pieces = zip(links, np.split(x, ends, axis))
        return tuple(value for part, piece in pieces for value in part.read(piece))

    def write(*arrays):
        left = iter(arrays)
        pieces = [part.write(*itertools.islice(left, len(part.ours))) for part in links]
        return (np.concatenate([piece for (piece,) in pieces], axis),)

    return Link((theirs,), tuple(path for part in links for path in part.ours), read, write)


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


def tensor_links(arch: Any, names: TensorNames) -> list[Link]:
    """Links the variables of an image or a text tower to the tensors that a project has for them.

    Args:
        arch: The architecture of the model.
        names: The names of the project. Variables without a name get no link.
    """
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
        if ours == RELATIVE:  # in a table of the block, in one that all share, or in their sum
            tables = (f"{prefix}{names.relative}" if names.relative else "", names.shared_relative)
            links.append(_sum(tuple(filter(None, tables)), path))
        elif theirs:
            tensors.setdefault(f"{prefix}{theirs}", []).append(path)
    return links + [_tensor_link(arch, names, *item) for item in tensors.items()]


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
    join = lambda x, *places: np.concatenate([x[:, place] for place in places], axis=1)
    single, end = slice(start), start + count
    ours = lambda x: join(x, single, slice(-count, None), slice(start, -count))
    theirs = lambda x: join(x, single, slice(end, None), slice(start, end))
    return dataclasses.replace(
        link,
        read=lambda x: (ours(*link.read(x)),),
        write=lambda x: link.write(theirs(x)),
    )
