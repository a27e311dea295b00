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


def heads_in(theirs: str, ours: str, num_heads: int) -> list[Link]:
    """Links a projection `(D, D)`, whose rows are ordered by head, to a kernel `(D, H, d)`."""
    return [
        _fused(f"{theirs}.weight", (f"{ours}/kernel",), num_heads),
        Link(
            (f"{theirs}.bias",),
            (f"{ours}/bias",),
            lambda b: (b.reshape(num_heads, -1),),
            lambda b: (b.reshape(-1),),
        ),
    ]


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
    weight: str, bias: str, ours: str, projections: tuple[str, ...], num_heads: int
) -> list[Link]:
    """Links one matrix `(P · D, D)` to P projections, such as query, key and value."""
    kernels = tuple(f"{ours}/{name}/kernel" for name in projections)
    biases = tuple(f"{ours}/{name}/bias" for name in projections)
    return [
        _fused(weight, kernels, num_heads),
        Link(
            (bias,),
            biases,
            lambda b: tuple(b.reshape(len(projections), num_heads, -1)),
            lambda *b: (np.stack(b).reshape(-1),),
        ),
    ]


def _fused(theirs, ours, num_heads):
    def read(w):  # (P · H · d, D) -> P times (D, H, d)
        kernels = w.reshape(len(ours), num_heads, -1, w.shape[-1])
        return tuple(kernel.transpose(2, 0, 1) for kernel in kernels)

    def write(*kernels):
        return (np.stack([k.reshape(len(k), -1).T for k in kernels]).reshape(-1, len(kernels[0])),)

    return Link((theirs,), ours, read, write)
