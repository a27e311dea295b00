"""KerasHub's `ViTImageClassifier` and `ViTBackbone`: preset folders and `.weights.h5`.

Kernels have the layouts of this package. Biases that an option of `ViTBackbone` leaves out are
read as zeros. A `.weights.h5` without a preset's JSON files says neither what the classifier reads,
nor its activation, nor the epsilon.
"""

import re
from collections.abc import Collection
from typing import Any

import keras
import numpy as np

from vit_keras.annotated import short
from vit_keras.models import Preprocessing
from vit_keras.weights.architectures import (
    VisionTransformerArchitecture,
    count_blocks,
    guess_image_size,
)
from vit_keras.weights.containers.checks import UnreadModel
from vit_keras.weights.formats import keras_hub_preset as preset
from vit_keras.weights.formats.base import Format, Link, refuse_hybrid, reshaped, same, zeros
from vit_keras.weights.numerics import Numerics

PATCHES, ENCODER = preset.PATCHES, preset.ENCODER
BLOCK = f"{ENCODER}/transformer_block_"
BIAS = re.compile(r"/(patch|mha|mlp)(?:_embedding)?/(?:.*/)?1$")
# What the values of `pooling` do with the tokens that no classifier of ours reads in this way.
POOLED = {"gap": "averages the class token with the patches", "token": "reads the first patch"}


def canonical(name: str) -> str:
    """Removes the name of the backbone."""
    return re.sub(rf"^.*?({PATCHES}|{ENCODER})/", r"\1/", name)


def detect(names: set[str]) -> bool:
    return {f"{PATCHES}/patch_embedding/0", f"{BLOCK}1/mha/query/0"} <= names


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    if "predictions/0" in (names or ()) and arch.num_classes is not None:
        check(arch)  # classifiers that read other tokens have the same variables
        _check_pooling(_task(config).get("pooling", arch.classifier), f"{PATCHES}/0" in names)
    positions = (-1, arch.hidden_size)
    result = _pair(f"{PATCHES}/patch_embedding", "embedding", "kernel", "bias")
    result += [same(f"{PATCHES}/0", "cls/cls")] if arch.classifier == "token" else []
    position = "posembed_input/pos_embedding"
    result += [reshaped(f"{PATCHES}/position_embedding/0", position, positions, (1, *positions))]
    for i in range(arch.num_layers):
        result += _block(f"{BLOCK}{i + 1}", f"encoderblock_{i}")
    result += _pair(f"{ENCODER}/ln", "encoder_norm", "gamma", "beta")
    if arch.representation_size is not None:
        result += _pair("pre_logits", "pre_logits", "kernel", "bias")
    if arch.num_classes is not None:
        result += _pair("predictions", "head", "kernel", "bias")
    if names is None:
        return result
    biased = {*map(_option, names)}
    biased |= {option for option, value in (config.get("config") or {}).items() if value is True}
    return [k if _option(k.theirs[0]) in {None, *biased} else zeros(*k.ours) for k in result]


def _option(name):
    """The option of `ViTBackbone` that leaves out the tensor; None for what is always there."""
    return f"use_{match[1]}_bias" if (match := BIAS.search(name)) else None


def _pair(theirs, ours, first, second):
    return [same(f"{theirs}/0", f"{ours}/{first}"), same(f"{theirs}/1", f"{ours}/{second}")]


def _block(old, new):
    projections = {"query": "query", "key": "key", "value": "value", "attention_output": "out"}
    attention = f"{new}/MultiHeadDotProductAttention_1"
    return [
        *_pair(f"{old}/ln_1", f"{new}/LayerNorm_0", "gamma", "beta"),
        *(
            link
            for theirs, ours in projections.items()
            for link in _pair(f"{old}/mha/{theirs}", f"{attention}/{ours}", "kernel", "bias")
        ),
        *_pair(f"{old}/ln_2", f"{new}/LayerNorm_2", "gamma", "beta"),
        *_pair(f"{old}/mlp/dense_1", f"{new}/MlpBlock_3/Dense_0", "kernel", "bias"),
        *_pair(f"{old}/mlp/dense_2", f"{new}/MlpBlock_3/Dense_1", "kernel", "bias"),
    ]


def infer(shapes: dict, config: dict) -> dict:
    height, width, channels, hidden_size = shapes[f"{PATCHES}/patch_embedding/0"]
    token, task = f"{PATCHES}/0" in shapes, _task(config)
    arguments = {
        "patch_size": (height, width),
        "channels": channels,
        "hidden_size": hidden_size,
        "num_layers": count_blocks(shapes, BLOCK),
        "num_heads": shapes[f"{BLOCK}1/mha/query/0"][1],
        "mlp_dim": shapes[f"{BLOCK}1/mlp/dense_1/0"][1],
        "num_classes": shapes.get("predictions/0", (None,))[-1],
        "representation_size": shapes.get("pre_logits/0", (None,))[-1],
    }
    positions = shapes[f"{PATCHES}/position_embedding/0"][0]
    arguments |= guess_image_size(positions, (height, width), token)
    if image_shape := config.get("config", {}).get("image_shape"):
        channels_last = image_shape[-1] == channels
        arguments["image_size"] = tuple(image_shape[:2] if channels_last else image_shape[1:])
    if "predictions/0" not in shapes:
        arguments["classifier"] = "token" if token else "gap"
    elif task:
        _check_pooling(task["pooling"], token)
        arguments |= {"classifier": task["pooling"], **_activation(task["activation"])}
    return arguments


def _task(config):
    """The arguments of the classifier, or nothing without a preset."""
    task = (config or {}).get("task.json")
    return {"pooling": "token", "activation": None, **task.get("config", {})} if task else {}


def _check_pooling(pooling, token):
    if pooling != ("token" if token else "gap"):
        raise UnreadModel(
            f"KerasHub's pooling={pooling!r} with use_class_token={token} "
            f"{POOLED.get(pooling, 'reads every token')}, and no classifier of this package does "
            "so. Save the backbone alone with `classifier.backbone.save_to_preset(folder)`"
        )


def _activation(activation):
    """The argument for the activation of the head; empty for logits."""
    name = activation.get("config") if isinstance(activation, dict) else activation
    if name is None or name == "linear":
        return {}
    if not hasattr(keras.activations, str(name)):
        message = "The classifier's activation must be one of `keras.activations`. Received: "
        raise UnreadModel(message + short(activation))
    return {"classifier_activation": name}


def assumption(shapes: dict, config: dict, overrides: Collection[str]) -> str:
    """KerasHub's defaults and a square image, where no JSON file of a preset says otherwise."""
    unsaid = {}
    if "config" not in config:
        image_size = infer(shapes, config).get("image_size")
        unsaid = {"layer_norm_epsilon": 1e-6, "image_size": image_size}
    if "predictions/0" in shapes and not _task(config):
        unsaid["classifier_activation"] = None
    text = ", ".join(f"{name}={value}" for name, value in unsaid.items() if name not in overrides)
    return text and f"a model with {text}, which it does not say; pass what is otherwise"


def numerics(config: dict) -> Numerics:
    backbone, preprocessor = config.get("config"), _task(config).get("preprocessor") or {}
    converter = preprocessor.get("config", {}).get("image_converter")
    return Numerics(
        layer_norm_epsilon=None if backbone is None else backbone.get("layer_norm_epsilon", 1e-6),
        preprocessing=_preprocessing(converter),
    )


def _preprocessing(converter: dict[str, Any] | None) -> Preprocessing:
    """Turns `(x · scale + offset - norm_mean) / norm_std` of pixels x in [0, 255] into ours.

    KerasHub 0.18 wrote the last two. Without a converter, pixels go to [-1, 1].
    """
    default = {"config": {"scale": 1 / 127.5, "offset": -1.0}}
    content: dict[str, Any] = (converter or default).get("config", {})
    if content.get("pad_to_aspect_ratio"):
        raise UnreadModel("`pad_to_aspect_ratio` in task.json must be false. Received: true")
    absent = {"scale": 1.0, "offset": 0.0, "norm_mean": 0.0, "norm_std": 1.0}
    values = (absent[name] if content.get(name) is None else content[name] for name in absent)
    scale, offset, mean, std = np.broadcast_arrays(*map(np.atleast_1d, values))
    with np.errstate(all="ignore"):  # `Preprocessing` refuses what is not finite
        mean, std = (mean - offset) / (255 * scale), std / (255 * scale)
    return Preprocessing(
        mean=tuple(mean.tolist()),
        std=tuple(std.tolist()),
        interpolation=content.get("interpolation", "bilinear"),
        antialias=content.get("antialias", False),
        crop_fraction=1.0 if content.get("crop_to_aspect_ratio", True) else None,
        rounding="none",
    )


def check(arch: VisionTransformerArchitecture) -> None:
    refuse_hybrid(arch, "KerasHub")
    if arch.classifier not in ("token", "gap"):
        raise ValueError(
            'KerasHub\'s ViT has classifier "token" or "gap". '
            f"Received: classifier={arch.classifier!r}"
        )
    if arch.num_classes is None and arch.representation_size is not None:
        raise ValueError(
            "KerasHub's ViTBackbone has no hidden layer `pre_logits`. "
            f"Received: representation_size={arch.representation_size}, num_classes=None"
        )


FORMAT = Format(
    name="keras_hub",
    suffixes=(".weights.h5",),
    detect=detect,
    infer=infer,
    links=links,
    numerics=numerics,
    canonical=canonical,
    holds_activation=True,
    head=("predictions/", "pre_logits/"),
    check=check,
    assumption=assumption,
    config_files=preset.config_files,
    h5_groups=preset.h5_groups,
)
