"""BiT's `.npz` (arXiv 1912.11370) in big_transfer's names; big_vision's are read as well."""

import re

from vit_keras.weights.architectures import resnet as stems
from vit_keras.weights.formats.base import Format, Link, Numerics, same, unpadded

PARTS = {"a": "1", "b": "2", "c": "3"}
LEGACY = {part: letter for letter, part in PARTS.items()}
UNIT = re.compile(r"^(block\d+/unit\d+)/([abc])/(.*)$")


def canonical(name: str) -> str:
    """big_vision's name of a tensor."""
    name = re.sub(r"^(params/|opt/target/)?(resnet/)?", "", name)
    name = re.sub(r"(standardized_conv2d|group_norm)_\d+", r"\1", name)
    unit = UNIT.match(name)
    if unit:
        return f"{unit[1]}/{_part(PARTS[unit[2]], unit[3])}"
    name = name.replace("root_block/standardized_conv2d/", "root_block/conv_root/")
    name = re.sub(r"^group_norm/", "norm-pre-head/", name).replace("head/conv2d/", "head/")
    return _published(name)


def _part(number, rest):
    rest = re.sub(r"^proj/standardized_conv2d", "conv_proj", rest)
    rest = re.sub(r"^standardized_conv2d", f"conv{number}", rest)
    return _published(re.sub(r"^group_norm", f"gn{number}", rest))


def _published(name):
    """Flax's names of a norm's weights."""
    return re.sub(r"/gamma$", "/scale", re.sub(r"/beta$", "/bias", name))


def legacy(path: str) -> str:
    """big_transfer's name of a variable of ours."""
    unit, _, part = path.rpartition("/unit")
    if not unit:
        path = path.replace("root_block/conv_root/", "root_block/standardized_conv2d/")
        path = path.replace("norm-pre-head/", "group_norm/").replace("head/", "head/conv2d/")
        return f"resnet/{path}"
    number, layer, leaf = part.split("/")
    if layer == "conv_proj":
        return f"resnet/{unit}/unit{number}/a/proj/standardized_conv2d/{leaf}"
    kind = "standardized_conv2d" if layer.startswith("conv") else "group_norm"
    return f"resnet/{unit}/unit{number}/{LEGACY[layer[-1]]}/{kind}/{leaf}"


def detect(names: set[str]) -> bool:
    return {"root_block/conv_root/kernel", "block1/unit01/conv1/kernel"} <= names


def links(arch: stems.ResNetArchitecture, names=None) -> list[Link]:
    name = legacy if names is None else _published
    out = []
    for path in stems.resnet_paths(arch):
        if path == "head/kernel":
            out.append(_head(name(path), path))
        else:
            out.append((unpadded if "/gn" in path else same)(name(path), path))
    return out


def _head(theirs, ours):
    """A 1x1 convolution `(1, 1, F, K)` in big_transfer, a matrix in big_vision."""
    return Link(
        (theirs,),
        (ours,),
        lambda x: (x.reshape(x.shape[-2:]),),
        lambda x: (x[None, None],),
        unpadded=True,
    )


def infer(shapes: dict, config: dict) -> dict:
    *_, channels, width = shapes["root_block/conv_root/kernel"]
    return {
        "resnet_layers": stems.count_units(shapes, r"^block(\d+)/unit(\d+)/conv1/"),
        "resnet_width": width / stems.WIDTH,
        "channels": channels,
        "num_classes": shapes.get("head/kernel", (None,))[-1],
    }


FORMAT = Format(
    name="bit",
    suffixes=(".npz",),
    detect=detect,
    infer=infer,
    links=links,
    numerics=lambda config: Numerics(),
    canonical=canonical,
    head=("head/",),
    describe=stems.describe,
)
