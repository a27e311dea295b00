"""KerasHub's files: the groups of its `.weights.h5`, and the JSON files of a preset."""

from typing import Any

import keras

from vit_keras.annotated import short
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.containers.checks import UnreadModel
from vit_keras.weights.numerics import Numerics

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
