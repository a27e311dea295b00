"""Meta's state dicts of DINO and DINOv2, whose names are nearly timm's.

Checkpoints of training hold a teacher, whose names begin with "backbone.". No file says the number
of heads, but those of the published widths are known.
"""

import dataclasses
import re

import numpy as np

from vit_keras.models import Preprocessing
from vit_keras.resizing import Resizing
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.base import Format, Link, Numerics, refuse_hybrid
from vit_keras.weights.formats.clip_names import below
from vit_keras.weights.formats.tensor_links import tensor_links
from vit_keras.weights.formats.tensor_names import TensorNames
from vit_keras.weights.formats.tensor_shapes import covered_positions, tensor_sizes

TEACHER = "backbone."  # the prefix of the encoder in a checkpoint of training
DINO = TensorNames(
    patches="patch_embed.proj",
    block="blocks.{}.",
    norm_0="norm1",
    qkv="attn.qkv",
    out="attn.proj",
    scale_0="ls1.gamma",
    norm_2="norm2",
    dense_0="mlp.fc1",
    dense_1="mlp.fc2",
    scale_1="ls2.gamma",
    norm="norm",
    cls="cls_token",
    registers="register_tokens",
    positions="pos_embed",
)
GIANT = dataclasses.replace(DINO, packed="mlp.w12", dense_1="mlp.w3")
MASK_TOKEN = "mask_token"
ONLY_HERE = (MASK_TOKEN, "register_tokens", "blocks.0.mlp.w12.weight")
HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1536: 24}
IMAGENET = Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), rounding="none")
CROPPED = dataclasses.replace(
    IMAGENET, interpolation="bicubic", crop_fraction=0.875, rounding="torchvision"
)


def canonical(name: str) -> str:
    """Removes the prefixes of wrappers, and the numbers of chunks of blocks."""
    name = re.sub(r"^(module\.|_orig_mod\.)+", "", name)
    return re.sub(r"^((?:backbone\.)?blocks)\.\d+\.(\d+\.)", r"\1.\2", name)


def prefix_of(names) -> str:
    """The prefix of the encoder's names in a file."""
    return TEACHER if f"{TEACHER}cls_token" in names else ""


def admits(names: set[str]) -> bool:
    prefix = prefix_of(names)
    needed = ("patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "pos_embed")
    return {prefix + name for name in needed} <= names and "decoder_embed.weight" not in names


def detect(names: set[str]) -> bool:
    """Leaves a plain file of DINO to timm, which has the same names, unless its name says whose."""
    return admits(names) and (bool(prefix_of(names)) or any(name in names for name in ONLY_HERE))


def _row(names):
    prefix = prefix_of(names)
    return below(GIANT if f"{prefix}blocks.0.mlp.w12.weight" in names else DINO, prefix)


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    if names is not None:
        return tensor_links(arch, _row(names))
    written = tensor_links(arch, GIANT if arch.options.mlp == "swiglu" else DINO)
    if arch.options.layer_scale is not None:  # not in DINO
        written.append(constant(MASK_TOKEN, np.zeros((1, arch.hidden_size))))
    return written


def constant(name: str, value) -> Link:
    """Writes a tensor that the project's code wants and no model has a variable for."""
    return Link((name,), (), lambda x: (), lambda: (np.asarray(value, "float32"),))


def infer(shapes: dict, config: dict) -> dict:
    row = _row(shapes)
    arguments = tensor_sizes(row, shapes, "token")
    if (width := arguments["hidden_size"]) in HEADS:
        arguments["num_heads"] = HEADS[width]
    return arguments | covered_positions(arguments, shapes[row.positions][1])


def refine(numerics: Numerics, shapes: dict, config: dict) -> Numerics:
    has_registers = prefix_of(shapes) + "register_tokens" in shapes
    rule = "bicubic_antialias" if has_registers else "bicubic_offset"
    return dataclasses.replace(numerics, resizing=Resizing(rule))


def check(arch: VisionTransformerArchitecture) -> None:
    refuse_hybrid(arch, "Meta's DINO")
    cover = "class" if arch.options.num_registers else "all"
    check_only("Meta's DINO", arch, {"classifier": "token", "position_cover": cover})


def check_only(holder: str, arch: VisionTransformerArchitecture, only: dict) -> None:
    """Raises ValueError for a model with a head, or without the only values of some arguments."""
    only = {"num_classes": None, "representation_size": None, **only}
    whole = {**dataclasses.asdict(arch.options), **vars(arch)}
    received = {name: whole[name] for name in only}
    if received != only:
        rule, got = (", ".join(f"{k}={v!r}" for k, v in x.items()) for x in (only, received))
        raise ValueError(f"{holder} must have {rule}. Received: {got}")


FORMAT = Format(
    name="dino",
    suffixes=(".pth", ".safetensors"),
    detect=detect,
    admits=admits,
    file_names="dino_",
    infer=infer,
    links=links,
    numerics=lambda config: Numerics(preprocessing=CROPPED, resizing=Resizing("bicubic_offset")),
    refine=refine,
    canonical=canonical,
    options=("layer_scale", "num_registers", "position_cover", "mlp"),
    tower=TEACHER,
    ignored=(MASK_TOKEN, TEACHER + MASK_TOKEN),
    check=check,
)
