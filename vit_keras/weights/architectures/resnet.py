"""The ResNets, a hybrid's stem and BiT: sizes, the paths of their variables, numerics."""

import dataclasses
import re

import keras

from vit_keras.layers import ResNetStage, RootBlock, StdConv
from vit_keras.weights.numerics import Numerics

UNIT = [f"{kind}{part}" for kind in ("conv", "gn") for part in ("1", "2", "3", "_proj")]
WIDTH = 64  # channels of the root of a ResNet of width 1


@dataclasses.dataclass(frozen=True)
class ResNetArchitecture:
    """The arguments of `ResNet` that decide names and shapes."""

    image_size: tuple[int | None, int | None]
    channels: int
    resnet_layers: tuple[int, ...]
    resnet_width: float
    num_classes: int | None
    classifier: str | None = None
    grid: tuple[int, int] | None = None


def describe(model: keras.Model) -> ResNetArchitecture:
    """The architecture of a `ResNet`; ValueError for another model."""
    roots = [layer for layer in model.layers if isinstance(layer, RootBlock)]
    if len(roots) != 1:
        raise ValueError(
            f"BiT's files hold models of `ResNet`. Received: model {model.name!r}, which has no "
            "RootBlock"
        )
    head = next((layer for layer in model.layers if layer.name == "head"), None)
    return ResNetArchitecture(
        image_size=tuple(model.input_shape[1:3]),
        channels=model.input_shape[-1],
        resnet_layers=stages(model),
        resnet_width=roots[0].filters / WIDTH,
        num_classes=None if head is None else head.units,
    )


def stages(model: keras.Model) -> tuple[int, ...]:
    """The units of each stage."""
    return tuple(layer.num_units for layer in model.layers if isinstance(layer, ResNetStage))


def stem_sizes(model: keras.Model) -> dict:
    """The stem of a hybrid, as arguments of `HybridViT`; empty for another model."""
    roots = [layer for layer in model.layers if isinstance(layer, StdConv)]
    if not roots:
        return {}
    norm = next(layer for layer in model.layers if layer.name == "gn_root")
    return {
        "resnet_layers": stages(model),
        "resnet_width": roots[0].filters / WIDTH,
        "standardization": roots[0].standardization,
        "group_norm_epsilon": norm.epsilon,
    }


def stem_paths(resnet_layers: tuple[int, ...]) -> list[str]:
    """The paths of a hybrid's stem: a norm after each convolution, `unit1` of a stage projects."""
    names = ["conv_root/kernel", "gn_root/gamma", "gn_root/beta"]
    for s, units in enumerate(resnet_layers, 1):
        for u in range(1, units + 1):
            unit = f"block{s}/unit{u}"
            parts = ("1", "2", "3", "_proj") if u == 1 else ("1", "2", "3")
            for part in parts:
                names.append(f"{unit}/conv{part}/kernel")
                names += [f"{unit}/gn{part}/gamma", f"{unit}/gn{part}/beta"]
    return names


def resnet_paths(arch: ResNetArchitecture) -> list[str]:
    """The paths of BiT's variables: a norm before each convolution, `unit01` projects."""
    names = ["root_block/conv_root/kernel"]
    for s, units in enumerate(arch.resnet_layers, 1):
        for u in range(1, units + 1):
            unit = f"block{s}/unit{u:02d}"
            names += [f"{unit}/conv_proj/kernel"] if u == 1 else []
            for part in "123":
                names.append(f"{unit}/conv{part}/kernel")
                names += [f"{unit}/gn{part}/gamma", f"{unit}/gn{part}/beta"]
    names += ["norm-pre-head/gamma", "norm-pre-head/beta"]
    return names + (["head/kernel", "head/bias"] if arch.num_classes is not None else [])


def count_units(names, pattern: str) -> tuple[int, ...]:
    """The units of each stage; `pattern` matches a name and its groups are stage and unit."""
    found = {}
    for match in filter(None, map(re.compile(pattern).match, names)):
        found.setdefault(int(match[1]), set()).add(int(match[2]))
    return tuple(len(found[stage]) for stage in sorted(found))


def set_stem_numerics(model: keras.Model, numerics: Numerics) -> None:
    """Makes a hybrid's stem standardise and normalise as the source of its weights."""
    convention, epsilon = numerics.standardization, numerics.group_norm_epsilon
    if not any(isinstance(layer, StdConv) for layer in model.layers):
        return
    units = [
        unit for stage in model.layers if isinstance(stage, ResNetStage) for unit in stage.units
    ]
    for stage in [layer for layer in model.layers if isinstance(layer, ResNetStage)] + units:
        stage.standardization, stage.group_norm_epsilon = convention, epsilon
    parts = list(model.layers)
    for unit in units:
        parts += [getattr(unit, name, None) for name in UNIT]
    for part in parts:
        if isinstance(part, StdConv):
            part.standardization = convention
        elif isinstance(part, keras.layers.GroupNormalization):
            part.epsilon = epsilon
