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

from vit_keras.models import Preprocessing
from vit_keras.support.annotated import short
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.containers.checks import UnreadModel
from vit_keras.weights.formats.base import Format, Link, reshaped, same, zeros
from vit_keras.weights.numerics import Numerics
from vit_keras.weights.recognition import count_blocks, guess_image_size

# The classes that are read, by the JSON file of a preset that names them.
CLASSES = {"config.json": "keras_hub>ViTBackbone", "task.json": "keras_hub>ViTImageClassifier"}
READ = (
    "Of KerasHub's classes, ViTBackbone and ViTImageClassifier are read; models of other families "
    "are read from the files of timm and Hugging Face"
)
PATCHES, ENCODER = "vit_patching_and_embedding", "vit_encoder"
# Keras' numbered names, where they differ from the names of the layers.
NUMBERED_NAMES = {
    PATCHES: "layers/vi_t_patching_and_embedding",
    ENCODER: "layers/vi_t_encoder",
    "ln": "layer_norm",
    "ln_1": "layer_norm_1",
    "ln_2": "layer_norm_2",
    "query": "query_dense",
    "key": "key_dense",
    "value": "value_dense",
    "attention_output": "output_dense",
}


def check_class(name: str, content: Any, path: str) -> None:
    """Raises UnreadModel for the JSON file of a preset with another class than the ViT's."""
    name_of_class = content.get("registered_name") if isinstance(content, dict) else None
    if str(name_of_class).startswith("keras_hub>") and name_of_class != CLASSES.get(name):
        raise UnreadModel(f"{READ}. Received: {path!r} of {short(name_of_class)}")


def h5_groups(names: list[str], folder: bool) -> dict[str, dict[str, list[tuple[str, str | None]]]]:
    """Returns `{file: {name: [(group, name of its layer), …]}}` with the groups that Keras reads.

    A preset folder has the backbone and the head in two files. A single file nests the backbone.
    """
    files: dict[str, dict[str, list[tuple[str, str | None]]]] = {}
    for name in names:
        *layers, _ = name.split("/")
        backbone = layers[0] in (PATCHES, ENCODER)
        groups = [pair for part in layers for pair in _groups(part, "pre_logits/0" in names)]
        if backbone and not folder:
            groups = [("layers", None), ("vi_t_backbone", "vi_t_backbone"), *groups]
        file = "model.weights.h5" if backbone or not folder else "task.weights.h5"
        files.setdefault(file, {})[name] = groups
    return files


def _groups(part, pre_logits):
    """Returns the groups for one part of a name."""
    if part.startswith("transformer_block_"):
        index = int(part.rpartition("_")[2]) - 1
        key = "vi_t_encoder_block" + (f"_{index}" if index else "")
        return [("encoder_layers", None), (key, part)]
    if part in ("pre_logits", "predictions"):
        second = part == "predictions" and pre_logits
        return [("layers", None), ("dense_1" if second else "dense", part)]
    *containers, key = NUMBERED_NAMES.get(part, part).split("/")
    return [(container, None) for container in containers] + [(key, part)]


def config_files(arch: VisionTransformerArchitecture, numerics: Numerics) -> dict[str, dict]:
    """Returns a preset's JSON files, as `save_to_preset` of KerasHub 0.32 writes them."""
    backbone = _backbone(arch)
    if not hasattr(keras.activations, arch.classifier_activation or "linear"):
        message = "KerasHub's preset holds one of `keras.activations`. Received: a head with "
        raise ValueError(message + str(arch.classifier_activation))
    metadata = {"keras_version": keras.__version__, "keras_hub_version": "0.32.0"}
    if arch.num_classes is None:
        return {"config.json": backbone, "metadata.json": {**metadata, "tasks": []}}
    converter = _converter(arch, numerics.preprocessing)
    preprocessor = _object(
        "models.vit.vit_image_classifier_preprocessor",
        "ViTImageClassifierPreprocessor",
        image_converter=converter,
        config_file="preprocessor.json",
    )
    task = _object(
        "models.vit.vit_image_classifier",
        "ViTImageClassifier",
        backbone=backbone,
        preprocessor=preprocessor,
        num_classes=arch.num_classes,
        pooling=arch.classifier,
        activation=arch.classifier_activation,
        dropout=0.0,
        intermediate_dim=arch.representation_size,
    )
    return {
        "config.json": backbone,
        "task.json": task,
        "preprocessor.json": preprocessor,
        "image_converter.json": converter,
        "metadata.json": {**metadata, "tasks": ["ImageClassifier"]},
    }


def _backbone(arch):
    return _object(
        "models.vit.vit_backbone",
        "ViTBackbone",
        image_shape=[*arch.image_size, arch.channels],
        patch_size=list(arch.patch_size),
        num_layers=arch.num_layers,
        num_heads=arch.num_heads,
        hidden_dim=arch.hidden_size,
        mlp_dim=arch.mlp_dim,
        dropout_rate=0.0,
        attention_dropout=0.0,
        layer_norm_epsilon=arch.layer_norm_epsilon,
        use_class_token=arch.classifier == "token",
    )


def _converter(arch, pixels):
    scale, offset = pixels.rescaling()
    return _object(
        "models.vit.vit_image_converter",
        "ViTImageConverter",
        image_size=list(arch.image_size),
        scale=scale[0] if len(scale) == 1 else scale,
        offset=offset[0] if len(offset) == 1 else offset,
        interpolation=pixels.interpolation,
        antialias=pixels.antialias,
        crop_to_aspect_ratio=pixels.crop_fraction is not None,
    )


def _object(module, name, **config):
    return {
        "module": f"keras_hub.src.{module}",
        "class_name": name,
        "config": config,
        "registered_name": f"keras_hub>{name}",
    }


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
    """The arguments of the classifier, or nothing without a"""
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
    config_files=config_files,
    h5_groups=h5_groups,
)
