"""big_vision's `.npz`: positions at the top without a slot for the class token; scanned blocks.

These are also read:

- older files, which keep the slot or have the positions inside `Transformer`;
- files without positions, whose models have fixed sin-cos positions; models with
  `position_embedding="sincos2d"` are written in this form;
- `params/img/` of two-tower models, without the text tower;
- training states, without the optimizer;
- NaFlex models, which have one kernel row per value of a patch, `(p·p·3, D)`, and positions
  `(h, w, D)`; the model then has that grid, and `with_image_size` changes it.

A slot of zeros is not written. Any other slot is written, and big_vision folds it into `cls` when
it reads the file.
"""

import dataclasses
import math
import re

import numpy as np

from vit_keras.layers.positions import sincos_2d
from vit_keras.models import Preprocessing
from vit_keras.support.resizing import Resizing
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats import google
from vit_keras.weights.formats.base import Format, Link, Numerics
from vit_keras.weights.recognition import count_blocks, guess_image_size, square_side

POSITIONS, KERNEL = "pos_embedding", "embedding/kernel"
SCANNED = "Transformer/encoderblock"
_LINEN_OF = {ours: linen for linen, ours in google.LINEN_NAMES.items()}
_NUMBERED_LAYER = re.compile(rf"(encoderblock(?:_\d+)?)/({'|'.join(_LINEN_OF)})/")


def canonical(name: str) -> str:
    """Removes prefixes, restores Linen's numbering and puts the positions at the top."""
    name = re.sub(r"^(opt/target/)?(params/)?(img/)?", "", name)
    if name in ("t", "b"):  # the temperature and bias of two-tower models
        return f"txt/{name}"
    if name in (google.POSITIONS, "Transformer/pos_embedding"):
        return POSITIONS
    return _linen(name)


def _linen(name: str) -> str:
    return _NUMBERED_LAYER.sub(lambda m: f"{m[1]}/{_LINEN_OF[m[2]]}/", name)


def detect(names: set[str]) -> bool:
    return KERNEL in names and "Transformer/encoder_norm/scale" in names


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    scanned = names is not None and f"{SCANNED}/LayerNorm_0/scale" in names
    result = []
    for path in arch.paths:
        if path == "posembed_input/pos_embedding":
            result.append(_positions(arch, names))
        elif path == KERNEL:
            name = KERNEL if names is not None else f"params/{KERNEL}"
            result.append(Link((name,), (path,), _patch_kernel, _one))
        elif not (scanned and path.startswith("encoderblock_")):
            name = _linen(google.published_name(path))
            name = f"params/{name}" if names is None else name
            result.append(Link((name,), (path,), _one, _one))
    return result + (_scanned(arch) if scanned else [])


def _one(x):
    return (x,)


def _patch_kernel(x):
    return (x.reshape(_kernel_shape(x.shape)),)


def _kernel_shape(shape):
    """Returns `(p, p, 3, D)` for a kernel `(p·p·3, D)`; other shapes are unchanged."""
    if len(shape) != 2:
        return shape
    side = math.isqrt(shape[0] // 3)
    if 3 * side * side != shape[0]:
        raise ValueError(
            "A kernel of two axes must have a row for each of 3 channels of each pixel of a square "
            f"patch. Received: {shape[0]} rows"
        )
    return (side, side, 3, shape[1])


def _grid_of_positions(shape):
    """Returns the rows and columns of positions `(h, w, D)`; None for `(1, N, D)`."""
    return tuple(shape[:2]) if shape[0] > 1 else None


def _positions(arch, names):
    """Links learned positions, or fixed ones if the file has none."""
    ours = ("posembed_input/pos_embedding",)
    if names is not None and POSITIONS not in names:
        (rows, columns), slots = arch.grid, int(arch.classifier == "token")
        fixed = sincos_2d(rows, columns, arch.hidden_size, slots)
        return Link((), ours, lambda: (fixed,), lambda x: ())

    def write(x):
        has_slot = arch.classifier == "token" and arch.options.position_cover != "patches"
        slot_is_zero = has_slot and not x[:, 0].any()
        return (x[:, 1:],) if slot_is_zero else (x,)

    def read(x):
        return (x.reshape(1, -1, x.shape[-1]),)

    return Link((POSITIONS if names is not None else f"params/{POSITIONS}",), ours, read, write)


def _scanned(arch):
    """Links one tensor of all blocks, `(L, …)`, to L variables."""
    return [
        Link(
            (_linen(google.published_name(path)).replace("encoderblock_0", "encoderblock"),),
            tuple(path.replace("_0/", f"_{i}/", 1) for i in range(arch.num_layers)),
            tuple,
            lambda *x: (np.stack(x),),
        )
        for path in arch.paths
        if path.startswith("encoderblock_0/")
    ]


def infer(shapes: dict, config: dict) -> dict:
    shapes = {google.canonical(name): shape for name, shape in shapes.items()}
    shapes[KERNEL] = _kernel_shape(shapes[KERNEL])
    first = f"{SCANNED}/LayerNorm_0/scale"
    if first in shapes:
        arguments = google.sizes(shapes, shapes[first][0], SCANNED)
    else:
        num_layers = count_blocks(shapes, f"{SCANNED}_")
        arguments = google.sizes(shapes, num_layers, f"{SCANNED}_0")
    table, patch_size = shapes.get(POSITIONS, (1, 0)), arguments["patch_size"]
    if (grid := _grid_of_positions(table)) is not None:
        image_size = tuple(side * patch for side, patch in zip(grid, patch_size))
        return {**arguments, "image_size": image_size}
    positions = table[1]
    slot = arguments["classifier"] == "token" and square_side(positions) is None
    return arguments | guess_image_size(positions, patch_size, slot)


def refine(numerics: Numerics, shapes: dict, config: dict) -> Numerics:
    """Drops the crop for SigLIP, with its text tower or as NaFlex, which takes whole pictures."""
    naflex = _grid_of_positions(shapes.get(POSITIONS, (1, 0))) is not None
    if naflex:
        numerics = dataclasses.replace(numerics, resizing=NAFLEX)
    if naflex or any(name.startswith("txt/") for name in shapes):
        pixels = dataclasses.replace(numerics.preprocessing, crop_fraction=None)
        numerics = dataclasses.replace(numerics, preprocessing=pixels)
    return numerics


PUBLISHED = Resizing(crops=True)
NAFLEX = Resizing("bilinear_antialias", "bilinear_half_pixel", crops=True)
PREPROCESSING = Preprocessing(antialias=True, crop_fraction=0.875, rounding="none")

FORMAT = Format(
    name="big_vision",
    suffixes=(".npz",),
    detect=detect,
    infer=infer,
    links=links,
    numerics=lambda config: Numerics(gelu="tanh", preprocessing=PREPROCESSING, resizing=PUBLISHED),
    refine=refine,
    slots_optional=True,
    options=("position_cover",),
    positions=("learned", "sincos2d"),
    canonical=canonical,
    head=("head/", "pre_logits/"),
    ignored=("opt/", "extra/", "txt/"),
    classifiers=("token", "gap", "map"),
)
