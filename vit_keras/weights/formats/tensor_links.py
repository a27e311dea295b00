"""The links between a plain Vision Transformer and PyTorch tensors, from a table of names.

PyTorch's layouts are `(out, in)` matrices, `(out, in, h, w)` convolutions and fused projections.
Rotary positions rotate pairs of channels of queries and keys in a head, and projects order these
channels differently. This package pairs channels i and i + d/2, by rows for i < d/4 and by columns
for the others. A layout in `LAYOUTS` gives the position of each channel in a file.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from vit_keras.layers.base import QKV_BIASES
from vit_keras.models.boxes import head_layers
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.base import Link, reshaped, same, transposed
from vit_keras.weights.formats.tensor_names import PoolNames, TensorNames


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


LAYOUTS: dict[str, Callable[[int], np.ndarray]] = {
    "halves": halves,
    "interleaved": interleaved,
    "interleaved_columns_first": interleaved_columns_first,
}


def dense(theirs: str, ours: str) -> list[Link]:
    """Links `nn.Linear` to `keras.layers.Dense`."""
    return [
        transposed(f"{theirs}.weight", f"{ours}/kernel", (1, 0)),
        same(f"{theirs}.bias", f"{ours}/bias"),
    ]


def conv(theirs: str, ours: str) -> list[Link]:
    """Links `nn.Conv2d` (OIHW) to a convolution (HWIO)."""
    return [kernel(theirs, ours), same(f"{theirs}.bias", f"{ours}/bias")]


def kernel(theirs: str, ours: str) -> Link:
    """Links a convolution without bias."""
    return transposed(f"{theirs}.weight", f"{ours}/kernel", (3, 2, 0, 1))


def norm(theirs: str, ours: str, kind: str = "layer") -> list[Link]:
    """Links `nn.LayerNorm` or `nn.GroupNorm` to gamma and beta, or for kind "rms" to a scale."""
    if kind == "rms":
        return [same(f"{theirs}.weight", f"{ours}/scale")]
    return [same(f"{theirs}.weight", f"{ours}/gamma"), same(f"{theirs}.bias", f"{ours}/beta")]


ROTATED = ("query", "key")  # the projections whose heads have a special order


def heads_in(
    theirs: str, ours: str, num_heads: int, order: np.ndarray | None = None, has_bias: bool = True
) -> list[Link]:
    """Links a projection `(D, D)` with rows ordered by head to a kernel `(D, H, d)`.

    `order` gives the position of each of our channels in their heads; see `LAYOUTS`.
    """
    link = heads_bias(f"{theirs}.bias", (ours,), num_heads, order)
    return [_fused(f"{theirs}.weight", (ours,), num_heads, order), *([link] if has_bias else [])]


def heads_out(theirs: str, ours: str, num_heads: int) -> list[Link]:
    """Links the projection of all heads `(D, D)` to a kernel `(H, d, D)`."""
    kernel = Link(
        (f"{theirs}.weight",),
        (f"{ours}/kernel",),
        lambda w: (w.T.reshape(num_heads, -1, len(w)),),
        lambda k: (k.reshape(-1, k.shape[-1]).T,),
    )
    return [kernel, same(f"{theirs}.bias", f"{ours}/bias")]


def fused(
    weight: str,
    bias: str,
    ours: str,
    projections: tuple[str, ...],
    num_heads: int,
    order: np.ndarray | None = None,
    biased: tuple[str, ...] | None = None,
) -> list[Link]:
    """Links one matrix `(P · D, D)` to P projections, such as query, key and value.

    `biased` are the projections with a bias; the file's bias is zero for the others.
    """
    paths = tuple(f"{ours}/{name}" for name in projections)
    links = [_fused(weight, paths, num_heads, order)]
    held = projections if biased is None else tuple(n for n in projections if n in biased)
    places = [projections.index(name) for name in held]
    biases = tuple(f"{ours}/{name}/bias" for name in held)

    def read(b):
        slices = b.reshape(len(projections), num_heads, -1)
        return tuple(_ordered(slices[i], projections[i], order) for i in places)

    def write(*slices):
        whole = np.zeros((len(projections), *slices[0].shape), slices[0].dtype)
        for i, part in zip(places, slices):
            whole[i] = _ordered(part, projections[i], order, back=True)
        return (whole.reshape(-1),)

    return links + ([Link((bias,), biases, read, write)] if held else [])


def heads_bias(theirs: str, ours: tuple[str], num_heads: int, order: np.ndarray | None = None):
    """Links the bias `(D,)` of one projection to a bias `(H, d)`."""
    name = ours[0].rsplit("/", 1)[-1]
    return Link(
        (theirs,),
        (f"{ours[0]}/bias",),
        lambda b: (_ordered(b.reshape(num_heads, -1), name, order),),
        lambda b: (_ordered(b, name, order, back=True).reshape(-1),),
    )


def _ordered(x, name, order, back=False):
    """Reorders the last axis, the channels of a head, of a query or key."""
    if order is None or name not in ROTATED:
        return x
    return x[..., np.argsort(order) if back else order]


def _fused(theirs, ours, num_heads, order=None):
    names = [path.rsplit("/", 1)[-1] for path in ours]

    def read(w):  # (P · H · d, D) -> P times (D, H, d)
        kernels = w.reshape(len(ours), num_heads, -1, w.shape[-1]).transpose(0, 3, 1, 2)
        return tuple(_ordered(kernel, name, order) for kernel, name in zip(kernels, names))

    def write(*kernels):
        theirs = [_ordered(k, name, order, back=True) for k, name in zip(kernels, names)]
        return (np.stack([k.reshape(len(k), -1).T for k in theirs]).reshape(-1, len(theirs[0])),)

    return Link((theirs,), tuple(f"{path}/kernel" for path in ours), read, write)


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
        layers = {
            name: names.boxes[name] for name in head_layers(arch.options.boxes) if names.boxes
        }
        tie = lambda name: norm if name == "head_norm" else dense
        return [link for ours, theirs in layers.items() for link in tie(ours)(theirs, ours)]
    if not arch.options.head_use_bias:
        return [*links, _projection(names)]
    links += dense(names.head, "head")
    if arch.classifier == "distilled":
        links += dense(names.head_dist, "head_dist")
    return links


def _projection(names):
    if names.projection_is_ours:  # (D, K)
        return same(names.projection, "head/kernel")
    return transposed(names.projection, "head/kernel", (1, 0))


PROJECTIONS = ("query", "key", "value")


def tensor_links(arch: VisionTransformerArchitecture, names: TensorNames) -> list[Link]:
    """Links all variables of a model to the tensors of a project.

    Args:
        arch: The architecture of the model.
        names: The project's names for the tensors.

    Returns:
        The links, in the order of the model's layers.
    """
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
    shape = (*arch.patch_size, arch.channels, arch.hidden_size)  # the order of flat patches
    flat = Link(
        (f"{names.patches}.weight",),
        ("embedding/kernel",),
        lambda w: (w.T.reshape(shape),),
        lambda k: (k.reshape(-1, shape[-1]).T,),
    )
    return [flat, *bias]


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
    links = _projections(arch, names, its, ours, order)
    links += heads_out(its(names.out), f"{ours}/out", arch.num_heads)
    if options.qk_norm:
        for theirs, name in ((names.query_norm, "query_norm"), (names.key_norm, "key_norm")):
            links += _ordered_norm(its(theirs), f"{ours}/{name}", options.norm, order)
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


def _projections(arch, names, its, ours, order):
    heads, biased = arch.num_heads, QKV_BIASES[arch.options.qkv_bias]
    if names.parallel_in:
        return _parallel(arch, names, its, ours, order)
    if names.query:
        pairs = zip((names.query, names.key, names.value), PROJECTIONS)
        return [
            link
            for theirs, name in pairs
            for link in heads_in(its(theirs), f"{ours}/{name}", heads, order, name in biased)
        ]
    weight = f"{names.qkv}.weight" if names.qkv else f"{names.in_proj}_weight"
    bias = f"{names.qkv}.bias" if names.qkv else f"{names.in_proj}_bias"
    if not names.query_bias:
        return fused(its(weight), its(bias), ours, PROJECTIONS, heads, order, biased)
    links = fused(its(weight), "", ours, PROJECTIONS, heads, order, ())
    for theirs, name in ((names.query_bias, "query"), (names.value_bias, "value")):
        if name in biased:
            links.append(heads_bias(its(theirs), (f"{ours}/{name}",), heads, order))
    return links


def _parallel(arch, names, its, ours, order):
    """Links the fused input projection of a parallel block, `(M + 3D, D)`."""
    size, heads = arch.mlp_dim, arch.num_heads
    kernels = fused("", "", ours, PROJECTIONS, heads, order, ())[0]
    dense = ours.replace("MultiHeadDotProductAttention_1", "MlpBlock_3/Dense_0")
    links = [
        Link(
            (its(f"{names.parallel_in}.weight"),),
            (f"{dense}/kernel", *kernels.ours),
            lambda w: (w[:size].T, *kernels.read(w[size:])),
            lambda k, *rest: (np.concatenate([k.T, *kernels.write(*rest)]),),
        )
    ]
    if arch.options.qkv_bias == "none":
        return [*links, same(its(names.parallel_bias), f"{dense}/bias")]
    biases = fused("", "", ours, PROJECTIONS, heads, order)[1]
    bias = Link(
        (its(f"{names.parallel_in}.bias"),),
        (f"{dense}/bias", *biases.ours),
        lambda b: (b[:size], *biases.read(b[size:])),
        lambda b, *rest: (np.concatenate([b, *biases.write(*rest)]),),
    )
    return [*links, bias]


def _ordered_norm(theirs, ours, kind, order):
    """Links the normalization of a query or key; its channels follow the head's order."""
    if order is None:
        return norm(theirs, ours, kind)
    back = np.argsort(order)
    return [
        Link(link.theirs, link.ours, lambda x: (x[order],), lambda x: (x[back],))
        for link in norm(theirs, ours, kind)
    ]


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
    split = lambda x: (x[: len(x) // 2], x[len(x) // 2 :])
    slices = (f"{ours}/gate", f"{ours}/Dense_0")
    return [
        Link(
            (f"{theirs}.weight",),
            tuple(f"{part}/kernel" for part in slices),
            lambda w: tuple(half.T for half in split(w)),
            lambda *k: (np.concatenate([kernel.T for kernel in k]),),
        ),
        Link(
            (f"{theirs}.bias",),
            tuple(f"{part}/bias" for part in slices),
            split,
            lambda *b: (np.concatenate(b),),
        ),
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
