"""timm's state dicts of plain Vision Transformers (timm 1.0), and its folders.

These classes are read and written: VisionTransformer, DeiT's class with two tokens, Eva (EVA,
EVA-02, DINOv3, PE, RoPE-ViT) and Beit. NaFlexVit is read at the grid of its positions. It is
written to a folder if a model resizes positions in the same way, by "bilinear_antialias".

timm's `global_pool="avg"` normalizes after the mean, which is the classifier "gap_norm"; with
`fc_norm=False` timm normalizes before it, which is "gap". A projection without bias is written as a
head with a bias of zero. If positions cover the class token but not the registers, the position of
the class token is added to the token itself, as in timm.
"""

import dataclasses

import numpy as np

from vit_keras.models.options import OPTION_NAMES
from vit_keras.weights.architectures import HybridArchitecture, VisionTransformerArchitecture
from vit_keras.weights.formats.base import Format, Link
from vit_keras.weights.formats.tensor_links import tensor_links
from vit_keras.weights.formats.tensor_names import TensorNames
from vit_keras.weights.formats.timm.architectures import architecture_of, timm_arguments
from vit_keras.weights.formats.timm.names import (
    NAFLEX,
    names_for,
    names_in,
    rotary_layout,
    stem_links,
)
from vit_keras.weights.formats.timm.reading import infer, license_of, numerics, refine
from vit_keras.weights.formats.timm.writing import check, config_files

__all__ = ["FORMAT", "license_of"]

CLASS_TOKEN, POSITIONS = "cls/cls", "posembed_input/pos_embedding"
BUFFERS = "buffers."  # tensors computed from sizes


def canonical(name: str) -> str:
    """Translates the old name of the head's hidden layer."""
    if name.endswith((".relative_position_index", ".k_bias")) or name.startswith("rope.periods"):
        return f"{BUFFERS}{name}"
    return name.replace("pre_logits.fc.", "pre_logits.")


def detect(names: set[str]) -> bool:
    stem = {"patch_embed.proj.weight", "embeds.proj.weight"} & names
    attention = ("attn.qkv.weight", "attn.q_proj.weight", "in_proj.weight")
    return bool(stem) and any(f"blocks.0.{name}" in names for name in attention)


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    """Links a model to the tensors of a file, or to those to write."""
    row = names_for(arch) if names is None else names_in(names)
    if names is None and architecture_of(config or {}).startswith("naflexvit_"):
        row = dataclasses.replace(row, **NAFLEX)
    if row.patches == NAFLEX["patches"]:
        row = dataclasses.replace(row, linear_patches=_is_linear(config))
    if arch.options.rope is not None:
        reads = names is not None and config is not None and architecture_of(config)
        theirs = timm_arguments(config) if reads else None
        layout = rotary_layout(arch.options.rope, arch.options.pre_norm, theirs)
        row = dataclasses.replace(row, rotary=layout)
    result = tensor_links(_with_bias(arch), row)
    if arch.num_classes is not None and not arch.options.head_use_bias:
        result = _without_bias(result, row, arch.num_classes)
    if arch.options.position_cover == "class" and arch.options.num_registers:
        result = _folded(result, row)
    if isinstance(arch, HybridArchitecture):
        return stem_links(arch) + result
    return result


def _is_linear(config):
    return timm_arguments(config or {}).get("embed_proj_type", "linear") == "linear"


def _with_bias(arch):
    """Returns the architecture with a bias in its head, which timm's classes always have."""
    options = dataclasses.replace(arch.options, head_use_bias=True)
    return dataclasses.replace(arch, options=options)


def _without_bias(links, row: TensorNames, num_classes):
    """Links a projection to a head with zero bias; comes first, to fail before others are read.

    Raises:
        ValueError: On reading a file whose bias is not zero.
    """
    weight, bias = f"{row.head}.weight", f"{row.head}.bias"

    def read(kernel, offset):
        if offset.any():
            raise ValueError(
                f"A head without bias can be read only from a file whose {bias} is zero. "
                "Received: another bias; build the model with head_use_bias=True"
            )
        return (kernel.T,)

    write = lambda kernel: (kernel.T, np.zeros(num_classes, kernel.dtype))
    head = Link((weight, bias), ("head/kernel",), read, write)
    return [head, *(link for link in links if link.theirs not in ((weight,), (bias,)))]


def _folded(links, row: TensorNames):
    """Links the class token and its position to their sum, as in timm's DINOv2 with registers."""
    kept = [link for link in links if link.ours not in ((CLASS_TOKEN,), (POSITIONS,))]
    read = lambda cls, table: (cls, np.concatenate([np.zeros_like(cls), table], axis=1))
    write = lambda cls, table: (cls + table[:, :1], table[:, 1:])
    return [Link((row.cls, row.positions), (CLASS_TOKEN, POSITIONS), read, write), *kept]


FORMAT = Format(
    name="timm",
    suffixes=(".safetensors", ".pth"),
    detect=detect,
    infer=infer,
    links=links,
    numerics=numerics,
    refine=refine,
    canonical=canonical,
    options=OPTION_NAMES,
    positions=("learned", "none", "relative_2d"),
    hybrids=True,
    head=("head.", "head_dist.", "pre_logits."),
    ignored=(BUFFERS,),
    check=check,
    config_files=config_files,
)
