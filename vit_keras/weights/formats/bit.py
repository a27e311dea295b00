"""BiT's `.npz` (arXiv 1912.11370) with big_transfer's names; big_vision's names are also read."""

import re

from vit_keras.support.preprocessing import PUBLISHED_PREPROCESSING
from vit_keras.weights.architectures import ResNetArchitecture
from vit_keras.weights.formats.base import Format, Link, Numerics, same, unpadded
from vit_keras.weights.recognition import resnet_sizes

NUMBERS = {"a": "1", "b": "2", "c": "3"}
LETTERS = {number: letter for letter, number in NUMBERS.items()}
UNIT = re.compile(r"^(block\d+/unit\d+)/([abc])/(.*)$")


def canonical(name: str) -> str:
    """Translates a tensor's name to big_vision's."""
    name = re.sub(r"^(params/|opt/target/)?(resnet/)?", "", name)
    name = re.sub(r"(standardized_conv2d|group_norm)_\d+", r"\1", name)
    unit = UNIT.match(name)
    if unit:
        return f"{unit[1]}/{_unit_name(NUMBERS[unit[2]], unit[3])}"
    name = name.replace("root_block/standardized_conv2d/", "root_block/conv_root/")
    name = re.sub(r"^group_norm/", "norm-pre-head/", name).replace("head/conv2d/", "head/")
    return _flax_norm(name)


def _unit_name(number, rest):
    rest = re.sub(r"^proj/standardized_conv2d", "conv_proj", rest)
    rest = re.sub(r"^standardized_conv2d", f"conv{number}", rest)
    return _flax_norm(re.sub(r"^group_norm", f"gn{number}", rest))


def _flax_norm(name):
    """Renames gamma and beta as Flax does."""
    return re.sub(r"/gamma$", "/scale", re.sub(r"/beta$", "/bias", name))


def big_transfer_name(path: str) -> str:
    """Returns big_transfer's name for the variable with this path."""
    unit, _, part = path.rpartition("/unit")
    if not unit:
        path = path.replace("root_block/conv_root/", "root_block/standardized_conv2d/")
        path = path.replace("norm-pre-head/", "group_norm/").replace("head/", "head/conv2d/")
        return f"resnet/{path}"
    number, layer, leaf = part.split("/")
    if layer == "conv_proj":
        return f"resnet/{unit}/unit{number}/a/proj/standardized_conv2d/{leaf}"
    kind = "standardized_conv2d" if layer.startswith("conv") else "group_norm"
    return f"resnet/{unit}/unit{number}/{LETTERS[layer[-1]]}/{kind}/{leaf}"


def detect(names: set[str]) -> bool:
    return {"root_block/conv_root/kernel", "block1/unit01/conv1/kernel"} <= names


def links(arch: ResNetArchitecture, names=None, config=None) -> list[Link]:
    name = big_transfer_name if names is None else _flax_norm
    result = []
    for path in arch.paths:
        if path == "head/kernel":
            result.append(_head(name(path), path))
        else:
            result.append((unpadded if "/gn" in path else same)(name(path), path))
    return result


def _head(theirs, ours):
    """Links the head: a 1x1 convolution `(1, 1, F, K)` in big_transfer, a matrix in big_vision."""
    return Link(
        (theirs,),
        (ours,),
        lambda x: (x.reshape(x.shape[-2:]),),
        lambda x: (x[None, None],),
        unpadded=True,
    )


def infer(shapes: dict, config: dict) -> dict:
    num_classes = shapes.get("head/kernel", (None,))[-1]
    return {**resnet_sizes(shapes, "root_block/conv_root/kernel"), "num_classes": num_classes}


FORMAT = Format(
    name="bit",
    suffixes=(".npz",),
    detect=detect,
    infer=infer,
    links=links,
    numerics=lambda config: Numerics(preprocessing=PUBLISHED_PREPROCESSING),
    canonical=canonical,
    head=("head/",),
    architecture=ResNetArchitecture,
)
