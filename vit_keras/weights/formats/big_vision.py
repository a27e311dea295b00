"""big_vision's `.npz`: positions at the top, without a slot for the class token; scanned blocks.

Read also: the older files that keep the slot or have the positions inside `Transformer`, those
without positions (the fixed sin-cos ones), `params/img/` of two-tower models, of which the text's
tower is left out, and training states, without their optimizer. Positions with a
class slot that is not zero are written with it, which big_vision folds into `cls` itself.
"""

import re

import numpy as np

from vit_keras.layers.position_tables import sincos_2d
from vit_keras.models import Preprocessing
from vit_keras.weights.architectures import vision_transformer as architecture
from vit_keras.weights.formats import google
from vit_keras.weights.formats.base import Format, Link, Numerics

POSITIONS = "pos_embedding"
SCANNED = "Transformer/encoderblock"
_LINEN = {new: old for old, new in google.LINEN.items()}
_OURS = re.compile(rf"(encoderblock(?:_\d+)?)/({'|'.join(_LINEN)})/")


def canonical(name: str) -> str:
    """Linen numbering, positions at the top, no prefix."""
    name = re.sub(r"^(opt/target/)?(params/)?(img/)?", "", name)
    if name in ("t", "b"):  # the temperature and bias of two-tower models
        return f"txt/{name}"
    if name in (google.POSITIONS, "Transformer/pos_embedding"):
        return POSITIONS
    return _linen(name)


def _linen(name: str) -> str:
    return _OURS.sub(lambda m: f"{m[1]}/{_LINEN[m[2]]}/", name)


def detect(names: set[str]) -> bool:
    return "embedding/kernel" in names and "Transformer/encoder_norm/scale" in names


def links(arch: architecture.Architecture, names=None) -> list[Link]:
    scanned = names is not None and f"{SCANNED}/LayerNorm_0/scale" in names
    out = []
    for path in architecture.paths(arch):
        if path == "posembed_input/pos_embedding":
            out.append(_positions(arch, names))
        elif not (scanned and path.startswith("encoderblock_")):
            name = _linen(google.published_name(path))
            out.append(Link((f"params/{name}" if names is None else name,), (path,), _one, _one))
    return out + (_scanned(arch) if scanned else [])


def _one(x):
    return (x,)


def _positions(arch, names):
    """Learned positions; the fixed ones, which no file holds, where `names` has none."""
    ours = ("posembed_input/pos_embedding",)
    if names is not None and POSITIONS not in names:
        fixed = sincos_2d(*arch.grid, arch.hidden_size, int(arch.classifier == "token"))
        return Link((), ours, lambda: (fixed,), lambda x: ())

    def write(x):
        slot_is_zero = arch.classifier == "token" and not x[:, 0].any()
        return (x[:, 1:],) if slot_is_zero else (x,)

    return Link((POSITIONS if names is not None else f"params/{POSITIONS}",), ours, _one, write)


def _scanned(arch):
    """One tensor of all blocks, `(L, …)`, and L variables."""
    return [
        Link(
            (_linen(google.published_name(path)).replace("encoderblock_0", "encoderblock"),),
            tuple(path.replace("_0/", f"_{i}/", 1) for i in range(arch.num_layers)),
            tuple,
            lambda *x: (np.stack(x),),
        )
        for path in architecture.block_paths("encoderblock_0")
    ]


def infer(shapes: dict, config: dict) -> dict:
    shapes = {google.canonical(name): shape for name, shape in shapes.items()}
    first = f"{SCANNED}/LayerNorm_0/scale"
    if first in shapes:
        found = google.sizes(shapes, shapes[first][0], SCANNED)
    else:
        blocks = architecture.count(shapes, f"{SCANNED}_")
        found = google.sizes(shapes, blocks, f"{SCANNED}_0")
    positions = shapes.get(POSITIONS, (1, 0))[1]
    slot = found["classifier"] == "token" and architecture.square(positions) is None
    return {**found, **architecture.guess_image_size(positions, found["patch_size"], slot)}


def check(arch: architecture.Architecture) -> None:
    architecture.refuse_stem(arch, "big_vision")
    if arch.classifier not in ("token", "gap", "map"):
        raise ValueError(
            'big_vision\'s files hold models with classifier "token", "gap" or "map". '
            f"Received: classifier={arch.classifier!r}"
        )


PREPROCESSING = Preprocessing(antialias=True, crop_fraction=0.875)

FORMAT = Format(
    name="big_vision",
    suffixes=(".npz",),
    detect=detect,
    infer=infer,
    links=links,
    numerics=lambda config: Numerics(gelu="tanh", preprocessing=PREPROCESSING),
    canonical=canonical,
    head=("head/", "pre_logits/"),
    ignored=("opt/", "extra/", "txt/"),
    check=check,
)
