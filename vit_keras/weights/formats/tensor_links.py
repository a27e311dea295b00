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

from vit_keras.layers.common import QKV_BIASES
from vit_keras.models.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.tensor_names import LAYOUTS, PoolNames, TensorNames


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


def reshaped(theirs: str, ours: str, their_shape, our_shape) -> Link:
    """Links one tensor with two shapes but the same order of elements."""
    return Link(
        (theirs,), (ours,), lambda x: (x.reshape(our_shape),), lambda x: (x.reshape(their_shape),)
    )


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


def transposed(theirs: str, ours: str, axes: tuple[int, ...]) -> Link:
    """Links one tensor; its axes in the file are `axes` of the model's variable."""
    back = tuple(int(i) for i in np.argsort(axes))
    return Link((theirs,), (ours,), lambda x: (x.transpose(back),), lambda x: (x.transpose(axes),))


def arranged(theirs: str, ours: str | tuple[str, ...], pattern: str, **sizes: int) -> Link:
    """Links one tensor whose axes are split and rearranged, in the notation of einops.

    Args:
        theirs: The name of the tensor.
        ours: The path of a variable, or of several, which lie along the first axis on the right.
        pattern: The axes in the file and in the model, such as "(h d) w -> w h d".
        **sizes: The sizes of axes in parentheses. One size in each pair may be left out.
    """
    left, right = pattern.split(" -> ")
    groups = [(inner or axis).split() for inner, axis in re.findall(r"\(([^)]*)\)|(\w+)", left)]
    names = [axis for group in groups for axis in group]
    order = [names.index(axis) for axis in right.split()]
    paths = (ours,) if isinstance(ours, str) else ours

    def read(x):
        held: dict[str, int] = {}
        for group, size in zip(groups, x.shape):
            others = math.prod(sizes.get(axis, 1) for axis in group)
            held |= {axis: sizes.get(axis, size // others) for axis in group}
        whole = x.reshape([held[axis] for axis in names]).transpose(order)
        return (whole,) if isinstance(ours, str) else tuple(whole)

    def write(*arrays):
        whole = arrays[0] if isinstance(ours, str) else np.stack(arrays)
        whole = whole.transpose(np.argsort(order))
        held = dict(zip(names, whole.shape))
        return (whole.reshape([math.prod(held[axis] for axis in group) for group in groups]),)

    return Link((theirs,), paths, read, write)


def dense(theirs: str, ours: str) -> list[Link]:
    """Links `nn.Linear` to `keras.layers.Dense`."""
    matrix = transposed(f"{theirs}.weight", f"{ours}/kernel", (1, 0))
    return [matrix, same(f"{theirs}.bias", f"{ours}/bias")]


def kernel(theirs: str, ours: str) -> Link:
    """Links a convolution without bias."""
    return transposed(f"{theirs}.weight", f"{ours}/kernel", (3, 2, 0, 1))


def norm(theirs: str, ours: str, kind: str = "layer") -> list[Link]:
    """Links `nn.LayerNorm` or `nn.GroupNorm` to gamma and beta, or for kind "rms" to a scale."""
    if kind == "rms":
        return [same(f"{theirs}.weight", f"{ours}/scale")]
    return [same(f"{theirs}.weight", f"{ours}/gamma"), same(f"{theirs}.bias", f"{ours}/beta")]


# Of query and key, and of their normalizations, the channels of a head have a special order.
ROTATED = ("query", "key", "query_norm", "key_norm")


def ordered(links: list[Link], order: np.ndarray | None) -> list[Link]:
    """Reorders the channels of heads, the last axis of variables in `ROTATED`.

    `order` gives the position of each of our channels in the file; see `LAYOUTS`.
    """
    return links if order is None else [_ordered(link, order, np.argsort(order)) for link in links]


def _ordered(link, order, back):
    rotated = [path.split("/")[-2] in ROTATED for path in link.ours]
    turn = lambda by, arrays: [x[..., by] if turns else x for x, turns in zip(arrays, rotated)]
    return dataclasses.replace(
        link,
        read=lambda *x: tuple(turn(order, link.read(*x))),
        write=lambda *x: link.write(*turn(back, x)),
    )


def heads_in(theirs: str, ours: str, num_heads: int, has_bias: bool = True) -> list[Link]:
    """Links a projection `(D, D)` with rows ordered by head to a kernel `(D, H, d)`."""
    links = [arranged(f"{theirs}.weight", f"{ours}/kernel", "(h d) w -> w h d", h=num_heads)]
    return links + ([heads_bias(f"{theirs}.bias", ours, num_heads)] if has_bias else [])


def heads_bias(theirs: str, ours: str, num_heads: int) -> Link:
    """Links the bias `(D,)` of one projection to a bias `(H, d)`."""
    return arranged(theirs, f"{ours}/bias", "(h d) -> h d", h=num_heads)


def heads_out(theirs: str, ours: str, num_heads: int) -> list[Link]:
    """Links the projection of all heads `(D, D)` to a kernel `(H, d, D)`."""
    kernel = arranged(f"{theirs}.weight", f"{ours}/kernel", "w (h d) -> h d w", h=num_heads)
    return [kernel, same(f"{theirs}.bias", f"{ours}/bias")]


def fused(
    weight: str,
    bias: str,
    ours: str,
    projections: tuple[str, ...],
    num_heads: int,
    biased: tuple[str, ...] | None = None,
) -> list[Link]:
    """Links one matrix `(P · D, D)` to P projections, such as query, key and value.

    `biased` are the projections with a bias; the file's bias is zero for the others.
    """
    paths = lambda leaf: tuple(f"{ours}/{name}/{leaf}" for name in projections)
    sizes = {"p": len(projections), "h": num_heads}
    kernels = arranged(weight, paths("kernel"), "(p h d) w -> p w h d", **sizes)
    whole = arranged(bias, paths("bias"), "(p h d) -> p h d", **sizes)
    if biased is None:
        return [kernels, whole]
    held = [name in biased for name in projections]
    if not any(held):
        return [kernels]

    def write(*slices):
        left, zeros = iter(slices), np.zeros_like(slices[0])
        return whole.write(*(next(left) if is_held else zeros for is_held in held))

    some = lambda items: tuple(itertools.compress(items, held))
    return [kernels, Link((bias,), some(whole.ours), lambda b: some(whole.read(b)), write)]


POOL, ATTENTION = "MAPHead_0", "MAPHead_0/MultiHeadDotProductAttention_0"


def pool_links(names: PoolNames, num_heads: int) -> list[Link]:
    """Links an attention pool of `num_heads` heads."""
    links = [same(names.probe, f"{POOL}/probe")]
    if names.in_proj:
        weight, bias = f"{names.in_proj}_weight", f"{names.in_proj}_bias"
        links += fused(weight, bias, ATTENTION, PROJECTIONS, num_heads)
    else:
        links += heads_in(names.query, f"{ATTENTION}/query", num_heads)
        weight, bias = f"{names.kv}.weight", f"{names.kv}.bias"
        links += fused(weight, bias, ATTENTION, PROJECTIONS[1:], num_heads)
    return [
        *links,
        *heads_out(names.out, f"{ATTENTION}/out", num_heads),
        *norm(names.norm, f"{POOL}/LayerNorm_0"),
        *dense(names.dense_0, f"{POOL}/MlpBlock_0/Dense_0"),
        *dense(names.dense_1, f"{POOL}/MlpBlock_0/Dense_1"),
    ]


def head_links(arch, names: TensorNames) -> list[Link]:
    """Links the classifier, or both for the distillation token, or a projection without bias."""
    links = []
    if arch.representation_size is not None:
        links += dense(names.pre_logits, "pre_logits")
    if arch.num_classes is None:
        return links
    if arch.options.boxes is not None:
        layers = dict.fromkeys(path.rpartition("/")[0] for path in arch.paths)
        tie = lambda name: norm if name == "head_norm" else dense
        held = [ours for ours in layers if ours in names.boxes]
        return [link for ours in held for link in tie(ours)(names.boxes[ours], ours)]
    if not arch.options.head_use_bias:
        axes = (0, 1) if names.projection_is_ours else (1, 0)  # (D, K) or (K, D)
        return [*links, transposed(names.projection, "head/kernel", axes)]
    links += dense(names.head, "head")
    if arch.classifier == "distilled":
        links += dense(names.head_dist, "head_dist")
    return links


PROJECTIONS = ("query", "key", "value")


def tensor_links(arch: VisionTransformerArchitecture, names: TensorNames) -> list[Link]:
    """Links all variables of a model, in the order of its layers, to the tensors of a project."""
    links = [*_stem(arch, names), *_prefix(arch, names)]
    if arch.options.pre_norm:
        links += norm(names.pre_norm, "pre_norm", arch.options.norm)
    for i in range(arch.num_layers):
        links += block_links(arch, names, i)
    if arch.options.rope is not None and arch.options.rope.mixed:
        links.append(_frequencies(arch, names))
    if arch.options.final_norm:
        pooled = names.pooled_norm if arch.classifier == "gap_norm" else ""
        links += norm(pooled or names.norm, "encoder_norm", arch.options.norm)
    if arch.classifier == "map" and names.pool is not None:
        links += pool_links(names.pool, arch.options.map_heads or arch.num_heads)
    return links + head_links(arch, names)


def _stem(arch, names):
    bias = [] if arch.options.pre_norm else [same(f"{names.patches}.bias", "embedding/bias")]
    if not names.linear_patches:
        return [kernel(names.patches, "embedding"), *bias]
    height, width = arch.patch_size
    pattern = "D (h w c) -> h w c D"  # the order of flat patches
    name = f"{names.patches}.weight"
    return [arranged(name, "embedding/kernel", pattern, h=height, w=width), *bias]


def _prefix(arch, names):
    """Links tokens and positions, which have fewer or more axes in some projects."""
    width = arch.hidden_size
    token = {3: (1, 1, width), 1: (width,)}[names.token_axes]
    links = [
        reshaped(getattr(names, name), f"{name}/cls", token, (1, 1, width))
        for name in arch.prefix.names
    ]
    if arch.options.num_registers:
        links.append(same(names.registers, "registers/registers"))
    return links + _positions(arch, names)


def _positions(arch, names):
    """Links the positions of the stem, and those before other blocks."""
    has_order = not names.registers_last or arch.options.position_cover == "all"
    if not arch.position_embedding.startswith("learned") or not has_order:
        return []
    (rows, columns) = arch.grid
    stem, *others = [path for path in arch.paths if path.endswith("/pos_embedding")]
    write = {
        3: lambda x: (x,),
        2: lambda x: (x[0],),
        4: lambda x: (x.reshape(1, rows, columns, arch.hidden_size),),
    }[names.position_axes]
    read = lambda x: (x.reshape(1, -1, x.shape[-1]),)
    links = [Link((names.positions,), (stem,), read, write)]
    if others and names.positions_of_blocks:
        stack = lambda *x: (np.stack(x),)
        links.append(Link((names.positions_of_blocks,), tuple(others), tuple, stack))
    return [_reordered(arch, link) for link in links] if names.registers_last else links


def _reordered(arch, link):
    """Links positions of a file in which registers come after patches, not before them."""
    start, count = len(arch.prefix.names), arch.prefix.num_registers
    join = lambda x, *places: np.concatenate([x[:, place] for place in places], axis=1)
    single, end = slice(start), start + count
    ours = lambda x: join(x, single, slice(-count, None), slice(start, -count))
    theirs = lambda x: join(x, single, slice(end, None), slice(start, end))
    read = lambda x: tuple(map(ours, link.read(x)))
    return dataclasses.replace(link, read=read, write=lambda *x: link.write(*map(theirs, x)))


def block_links(arch: Any, names: TensorNames, i: int) -> list[Link]:
    """Links the variables of one block of an image or a text tower."""
    options, kind, ours = arch.options, arch.options.norm, f"encoderblock_{i}"
    block = names.of_block(i, "")
    its = lambda name: f"{block}{name}"
    links = norm(its(names.norm_0), f"{ours}/LayerNorm_0", kind)
    links += _attention(arch, names, its, f"{ours}/MultiHeadDotProductAttention_1")
    if options.layer_scale is not None:
        links.append(same(its(names.scale_0), f"{ours}/LayerScale_0/gamma"))
    if not options.parallel:
        links += norm(its(names.norm_2), f"{ours}/LayerNorm_2", kind)
    links += _mlp(arch, names, its, f"{ours}/MlpBlock_3")
    if options.layer_scale is not None and not options.parallel:
        links.append(same(its(names.scale_1), f"{ours}/LayerScale_1/gamma"))
    return links


def _attention(arch, names, its, ours):
    options, order = arch.options, None
    if options.rope is not None:
        order = LAYOUTS[names.rotary](arch.hidden_size // arch.num_heads)
    links = _projections(arch, names, its, ours)
    links += heads_out(its(names.out), f"{ours}/out", arch.num_heads)
    if options.qk_norm:
        for theirs, name in ((names.query_norm, "query_norm"), (names.key_norm, "key_norm")):
            links += norm(its(theirs), f"{ours}/{name}", options.norm)
    links = ordered(links, order)
    if options.attention_norm:
        links += norm(its(names.attention_norm), f"{ours}/norm", options.norm)
    if arch.position_embedding.endswith("relative_2d"):
        links.append(_relative_table(its(names.relative) if names.relative else "", names, ours))
    return links


def _relative_table(block_table, names, ours):
    """Links a block's table of biases, or one that all blocks share, or the sum of both."""
    theirs = tuple(name for name in (block_table, names.shared_relative) if name)
    return Link(
        theirs, (f"{ours}/relative_2d/table",), lambda *x: (sum(x),), lambda x: (x,) * len(theirs)
    )


def _projections(arch, names, its, ours):
    heads, biased = arch.num_heads, QKV_BIASES[arch.options.qkv_bias]
    if names.parallel_in:
        return _parallel(arch, names, its, ours)
    if names.query:
        pairs = zip((names.query, names.key, names.value), PROJECTIONS)
        return [
            link
            for theirs, name in pairs
            for link in heads_in(its(theirs), f"{ours}/{name}", heads, name in biased)
        ]
    weight = f"{names.qkv}.weight" if names.qkv else f"{names.in_proj}_weight"
    bias = f"{names.qkv}.bias" if names.qkv else f"{names.in_proj}_bias"
    if not names.query_bias:
        return fused(its(weight), its(bias), ours, PROJECTIONS, heads, biased)
    pairs = zip((names.query_bias, names.value_bias), ("query", "value"))
    return [
        *fused(its(weight), "", ours, PROJECTIONS, heads, ()),
        *(heads_bias(its(old), f"{ours}/{name}", heads) for old, name in pairs if name in biased),
    ]


def _parallel(arch, names, its, ours):
    """Links the fused input projection of a parallel block, `(M + 3D, D)`."""
    kernels, biases = fused("", "", ours, PROJECTIONS, arch.num_heads)
    dense = ours.replace("MultiHeadDotProductAttention_1", "MlpBlock_3/Dense_0")
    kernel = transposed("", f"{dense}/kernel", (1, 0))
    links = [_stacked(its(f"{names.parallel_in}.weight"), arch.mlp_dim, kernel, kernels)]
    if arch.options.qkv_bias == "none":
        return [*links, same(its(names.parallel_bias), f"{dense}/bias")]
    bias = same("", f"{dense}/bias")
    return [*links, _stacked(its(f"{names.parallel_in}.bias"), arch.mlp_dim, bias, biases)]


def _stacked(theirs, rows, first, second):
    """Links a tensor whose first `rows` belong to one link, and the others to a second one."""
    return Link(
        (theirs,),
        first.ours + second.ours,
        lambda x: (*first.read(x[:rows]), *second.read(x[rows:])),
        lambda x, *others: (np.concatenate([*first.write(x), *second.write(*others)]),),
    )


def _mlp(arch, names, its, ours):
    if arch.options.parallel:
        links = []  # the block's input projection holds the first layer
    elif names.packed and arch.options.mlp == "swiglu":
        links = _packed(its(names.packed), ours)
    else:
        links = dense(its(names.dense_0), f"{ours}/Dense_0")
        if arch.options.mlp == "swiglu":
            links = dense(its(names.gate), f"{ours}/gate") + links
    if arch.options.mlp_norm:
        links += norm(its(names.mlp_norm), f"{ours}/norm", arch.options.norm)
    return links + dense(its(names.dense_1), f"{ours}/Dense_1")


def _packed(theirs, ours):
    """Links a matrix `(2M, D)` of gate and values, in this order."""
    paths = lambda leaf: tuple(f"{ours}/{part}/{leaf}" for part in ("gate", "Dense_0"))
    return [
        arranged(f"{theirs}.weight", paths("kernel"), "(p m) w -> p w m", p=2),
        arranged(f"{theirs}.bias", paths("bias"), "(p m) -> p m", p=2),
    ]


def _frequencies(arch, names):
    """Links the frequencies of all blocks `(2, L, H, d/2)`, columns first, to each block's."""
    paths = tuple(
        f"encoderblock_{i}/MultiHeadDotProductAttention_1/rotary/frequencies"
        for i in range(arch.num_layers)
    )
    read = lambda f: tuple(f[::-1, i] for i in range(f.shape[1]))
    write = lambda *f: (np.stack(f, axis=1)[::-1],)
    return Link((names.frequencies,), paths, read, write)
