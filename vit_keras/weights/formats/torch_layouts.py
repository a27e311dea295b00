"""PyTorch's layouts: `(out, in)` matrices, `(out, in, h, w)` convolutions, fused projections."""

import numpy as np

from vit_keras.weights.formats.base import Link, same, transposed


def dense(theirs: str, ours: str) -> list[Link]:
    """Links `nn.Linear` to `keras.layers.Dense`."""
    return [
        transposed(f"{theirs}.weight", f"{ours}/kernel", (1, 0)),
        same(f"{theirs}.bias", f"{ours}/bias"),
    ]


def conv(theirs: str, ours: str) -> list[Link]:
    """Links `nn.Conv2d` (OIHW) to a convolution (HWIO)."""
    return [
        kernel(theirs, ours),
        same(f"{theirs}.bias", f"{ours}/bias"),
    ]


def kernel(theirs: str, ours: str) -> Link:
    """Links a convolution without bias."""
    return transposed(f"{theirs}.weight", f"{ours}/kernel", (3, 2, 0, 1))


def norm(theirs: str, ours: str) -> list[Link]:
    """Links `nn.LayerNorm` or `nn.GroupNorm` to Keras' gamma and beta."""
    return [same(f"{theirs}.weight", f"{ours}/gamma"), same(f"{theirs}.bias", f"{ours}/beta")]


ROTATED = ("query", "key")  # the projections whose heads have an order of their own


def heads_in(
    theirs: str, ours: str, num_heads: int, order: np.ndarray | None = None, has_bias: bool = True
) -> list[Link]:
    """Links a projection `(D, D)`, whose rows are ordered by head, to a kernel `(D, H, d)`.

    `order` says where each number of a head of ours stands in theirs, see `rotary_layouts`.
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

    `biased` are the projections that have a bias; the others' part of the file's bias is zero.
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
    """Reorders the last axis, the numbers of a head, of a query or key."""
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
