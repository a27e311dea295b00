"""The links between a plain Vision Transformer and PyTorch tensors, from a table of names.

PyTorch's layouts are `(out, in)` matrices, `(out, in, h, w)` convolutions and fused projections.
Rotary positions rotate pairs of channels of queries and keys in a head, and projects order these
channels differently. This package pairs channels i and i + d/2, by rows for i < d/4 and by columns
for the others. A layout in `LAYOUTS` gives the position of each channel in a file.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from vit_keras.layers.base import QKV_BIASES
from vit_keras.models.boxes import head_layers
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.base import Link, arranged, reshaped, same, transposed
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
    size = arch.mlp_dim
    kernels, biases = fused("", "", ours, PROJECTIONS, arch.num_heads)
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
    bias = Link(
        (its(f"{names.parallel_in}.bias"),),
        (f"{dense}/bias", *biases.ours),
        lambda b: (b[:size], *biases.read(b[size:])),
        lambda b, *rest: (np.concatenate([b, *biases.write(*rest)]),),
    )
    return [*links, bias]


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
