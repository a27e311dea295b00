"""Image towers of OpenCLIP that are models of timm, such as its SigLIPs; they are read alone.

Their tensors are timm's, below "visual.trunk.", with a projection behind them or none. Models are
written as timm's or as transformers' own.
"""

import dataclasses

from vit_keras.models.options import OPTION_NAMES
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats import open_clip, timm
from vit_keras.weights.formats.base import Format, Link, Numerics, transposed

TRUNK, PROJECTION = "visual.trunk.", "visual.head.proj."
BESIDE = "beside."  # the prefix of tensors of other towers


def canonical(name: str) -> str:
    name = open_clip.canonical(name)
    if name.startswith(TRUNK):
        return timm.canonical(name.removeprefix(TRUNK))
    if name.startswith(PROJECTION):
        return name.replace(PROJECTION, "head.")
    return name if name.startswith("visual.") else f"{BESIDE}{name}"


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    linked = timm.links(arch, names, timm_config(config or {}))
    if arch.num_classes is None or arch.options.head_use_bias:
        return list(linked)
    projection = transposed("head.weight", "head/kernel", (1, 0))
    return [projection if link.ours == ("head/kernel",) else link for link in linked]


def timm_config(config: dict) -> dict:
    """What timm would say of the tower."""
    content = config.get(open_clip.CONFIG, {}).get("model_cfg", {}).get("vision_cfg", {})
    sizes = {"img_size": content.get("image_size"), "global_pool": content.get("timm_pool")}
    return {
        "architecture": content.get("timm_model_name", ""),
        "model_args": {name: value for name, value in sizes.items() if value},
    }


def infer(shapes: dict, config: dict) -> dict:
    arguments = timm.infer(shapes, timm_config(config))
    if arguments["num_classes"] is not None and "head.bias" not in shapes:
        arguments["head_use_bias"] = False
    return arguments


def numerics(config: dict) -> Numerics:
    source = config.get(open_clip.CONFIG, {}).get("preprocess_cfg", {})
    theirs = timm.numerics(timm_config(config))
    return dataclasses.replace(theirs, preprocessing=open_clip.preprocessing_of(source))


def check(arch) -> None:
    raise ValueError(
        "Towers of timm inside OpenCLIP's files are read alone. Received: a model to write; give "
        'format="timm", or "open_clip" for a CLIP'
    )


FORMAT = Format(
    name="open_clip_timm",
    suffixes=(".safetensors", ".bin"),
    detect=timm.detect,
    infer=infer,
    links=links,
    numerics=numerics,
    refine=lambda old, shapes, config: timm.refine(old, shapes, timm_config(config)),
    canonical=canonical,
    options=OPTION_NAMES,
    positions=timm.FORMAT.positions,
    head=("head.",),
    ignored=(*timm.FORMAT.ignored, BESIDE),
    check=check,
)
