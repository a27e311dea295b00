"""The links between a plain Vision Transformer and a project's tensors, from a table of names."""

import numpy as np

from vit_keras.layers.block_options import QKV_BIASES
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats import torch_layouts as torch
from vit_keras.weights.formats.base import Link, reshaped, same
from vit_keras.weights.formats.rotary_layouts import LAYOUTS
from vit_keras.weights.formats.tensor_heads import head_links, pool_links
from vit_keras.weights.formats.tensor_names import TensorNames

PROJECTIONS = ("query", "key", "value")


def tensor_links(arch: VisionTransformerArchitecture, names: TensorNames) -> list[Link]:
    """Links all variables of a model to the tensors of a project.

    Args:
        arch: The architecture of the model.
        names: What the project calls the tensors.

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


def norm(theirs: str, ours: str, kind: str = "layer") -> list[Link]:
    """Links a normalization; of kind "rms" it has no offset."""
    return (
        [same(f"{theirs}.weight", f"{ours}/scale")] if kind == "rms" else torch.norm(theirs, ours)
    )


def _stem(arch, names):
    bias = [] if arch.options.pre_norm else [same(f"{names.patches}.bias", "embedding/bias")]
    if not names.linear_patches:
        return [torch.kernel(names.patches, "embedding"), *bias]
    shape = (*arch.patch_size, arch.channels, arch.hidden_size)  # flat patches have this order
    kernel = Link(
        (f"{names.patches}.weight",),
        ("embedding/kernel",),
        lambda w: (w.T.reshape(shape),),
        lambda k: (k.reshape(-1, shape[-1]).T,),
    )
    return [kernel, *bias]


def _prefix(arch, names):
    """Links tokens and positions, which some projects hold with fewer or more axes."""
    width, (rows, columns) = arch.hidden_size, arch.grid
    token = {3: (1, 1, width), 1: (width,)}[names.token_axes]
    links = [
        reshaped(getattr(names, name), f"{name}/cls", token, (1, 1, width))
        for name in arch.prefix.names
    ]
    if arch.options.num_registers:
        links.append(same(names.registers, "registers/registers"))
    if arch.position_embedding == "learned":
        write = {
            3: lambda x: (x,),
            2: lambda x: (x[0],),
            4: lambda x: (x.reshape(1, rows, columns, width),),
        }[names.position_axes]
        read = lambda x: (x.reshape(1, -1, x.shape[-1]),)
        links.append(Link((names.positions,), ("posembed_input/pos_embedding",), read, write))
    return links


def block_links(arch: VisionTransformerArchitecture, names: TensorNames, i: int) -> list[Link]:
    """Links one block."""
    options, kind, ours = arch.options, arch.options.norm, f"encoderblock_{i}"
    its = lambda name: names.of_block(i, name)
    links = norm(its(names.norm_0), f"{ours}/LayerNorm_0", kind)
    links += _attention(arch, names, i)
    if options.layer_scale is not None:
        links.append(same(its(names.scale_0), f"{ours}/LayerScale_0/gamma"))
    if not options.parallel:
        links += norm(its(names.norm_2), f"{ours}/LayerNorm_2", kind)
    links += _mlp(arch, names, its, f"{ours}/MlpBlock_3")
    if options.layer_scale is not None and not options.parallel:
        links.append(same(its(names.scale_1), f"{ours}/LayerScale_1/gamma"))
    return links


def _attention(arch, names, i):
    options, its = arch.options, lambda name: names.of_block(i, name)
    ours = f"encoderblock_{i}/MultiHeadDotProductAttention_1"
    order = None
    if options.rope is not None:
        order = LAYOUTS[names.rotary](arch.hidden_size // arch.num_heads)
    links = _projections(arch, names, its, ours, order)
    links += torch.heads_out(its(names.out), f"{ours}/out", arch.num_heads)
    if options.qk_norm:
        for theirs, name in ((names.query_norm, "query_norm"), (names.key_norm, "key_norm")):
            links += _ordered_norm(its(theirs), f"{ours}/{name}", options.norm, order)
    if options.attention_norm:
        links += norm(its(names.attention_norm), f"{ours}/norm", options.norm)
    if arch.position_embedding == "relative_2d":
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
            for link in torch.heads_in(its(theirs), f"{ours}/{name}", heads, order, name in biased)
        ]
    weight = f"{names.qkv}.weight" if names.qkv else f"{names.in_proj}_weight"
    bias = f"{names.qkv}.bias" if names.qkv else f"{names.in_proj}_bias"
    if not names.query_bias:
        return torch.fused(its(weight), its(bias), ours, PROJECTIONS, heads, order, biased)
    links = torch.fused(its(weight), "", ours, PROJECTIONS, heads, order, ())
    for theirs, name in ((names.query_bias, "query"), (names.value_bias, "value")):
        if name in biased:
            links.append(torch.heads_bias(its(theirs), (f"{ours}/{name}",), heads, order))
    return links


def _parallel(arch, names, its, ours, order):
    """Links the fused input projection of a parallel block, `(M + 3D, D)`."""
    size, heads = arch.mlp_dim, arch.num_heads
    kernels = torch.fused("", "", ours, PROJECTIONS, heads, order, ())[0]
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
    biases = torch.fused("", "", ours, PROJECTIONS, heads, order)[1]
    bias = Link(
        (its(f"{names.parallel_in}.bias"),),
        (f"{dense}/bias", *biases.ours),
        lambda b: (b[:size], *biases.read(b[size:])),
        lambda b, *rest: (np.concatenate([b, *biases.write(*rest)]),),
    )
    return [*links, bias]


def _ordered_norm(theirs, ours, kind, order):
    """Links the normalization of a query or key, whose numbers follow the head's order."""
    if order is None:
        return norm(theirs, ours, kind)
    back = np.argsort(order)
    return [
        Link(link.theirs, link.ours, lambda x: (x[order],), lambda x: (x[back],))
        for link in norm(theirs, ours, kind)
    ]


def _mlp(arch, names, its, ours):
    if arch.options.parallel:
        links = []  # the input projection of the block holds the first layer
    elif names.packed and arch.options.mlp == "swiglu":
        links = _packed(its(names.packed), ours)
    else:
        links = torch.dense(its(names.dense_0), f"{ours}/Dense_0")
        if arch.options.mlp == "swiglu":
            links = torch.dense(its(names.gate), f"{ours}/gate") + links
    if arch.options.mlp_norm:
        links += norm(its(names.mlp_norm), f"{ours}/norm", arch.options.norm)
    return links + torch.dense(its(names.dense_1), f"{ours}/Dense_1")


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
