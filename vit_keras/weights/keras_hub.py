"""KerasHub's `ViTImageClassifier` and `ViTBackbone`: preset folders and `.weights.h5`.

Kernels have our layouts. A class token that is averaged with the patches has no counterpart here.
"""

import re

import keras

from vit_keras.models import Preprocessing
from vit_keras.weights import architecture
from vit_keras.weights.formats import Format, Link, Numerics, reshaped, same

PATCHES, ENCODER = "vit_patching_and_embedding", "vit_encoder"
BLOCK = f"{ENCODER}/transformer_block_"
# Where Keras' numbered names differ from the layers' own.
STRUCTURE = {
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


def canonical(name: str) -> str:
    """Without the name of the backbone."""
    return re.sub(rf"^.*?({PATCHES}|{ENCODER})/", r"\1/", name)


def detect(names: set[str]) -> bool:
    return {f"{PATCHES}/patch_embedding/0", f"{BLOCK}1/mha/query/0"} <= names


def links(arch: architecture.Architecture, names=None) -> list[Link]:
    positions = (-1, arch.hidden_size)
    out = _pair(f"{PATCHES}/patch_embedding", "embedding", "kernel", "bias")
    out += [same(f"{PATCHES}/0", "cls/cls")] if arch.classifier == "token" else []
    position = "posembed_input/pos_embedding"
    out += [reshaped(f"{PATCHES}/position_embedding/0", position, positions, (1, *positions))]
    for i in range(arch.num_layers):
        out += _block(f"{BLOCK}{i + 1}", f"encoderblock_{i}")
    out += _pair(f"{ENCODER}/ln", "encoder_norm", "gamma", "beta")
    if arch.representation_size is not None:
        out += _pair("pre_logits", "pre_logits", "kernel", "bias")
    if arch.num_classes is not None:
        out += _pair("predictions", "head", "kernel", "bias")
    return out


def _pair(theirs, ours, first, second):
    return [same(f"{theirs}/0", f"{ours}/{first}"), same(f"{theirs}/1", f"{ours}/{second}")]


def _block(old, new):
    parts = {"query": "query", "key": "key", "value": "value", "attention_output": "out"}
    attention = f"{new}/MultiHeadDotProductAttention_1"
    return [
        *_pair(f"{old}/ln_1", f"{new}/LayerNorm_0", "gamma", "beta"),
        *(
            link
            for theirs, ours in parts.items()
            for link in _pair(f"{old}/mha/{theirs}", f"{attention}/{ours}", "kernel", "bias")
        ),
        *_pair(f"{old}/ln_2", f"{new}/LayerNorm_2", "gamma", "beta"),
        *_pair(f"{old}/mlp/dense_1", f"{new}/MlpBlock_3/Dense_0", "kernel", "bias"),
        *_pair(f"{old}/mlp/dense_2", f"{new}/MlpBlock_3/Dense_1", "kernel", "bias"),
    ]


def infer(shapes: dict, config: dict) -> dict:
    height, width, channels, hidden_size = shapes[f"{PATCHES}/patch_embedding/0"]
    token = f"{PATCHES}/0" in shapes
    task = config.get("task.json", {}).get("config", {})
    if token and task.get("pooling") == "gap":
        raise ValueError(
            "No classifier here averages the class token with the patches, as KerasHub's "
            'pooling="gap" does with use_class_token=True.'
        )
    found = {
        "patch_size": (height, width),
        "channels": channels,
        "hidden_size": hidden_size,
        "num_layers": architecture.count(shapes, BLOCK),
        "num_heads": shapes[f"{BLOCK}1/mha/query/0"][1],
        "mlp_dim": shapes[f"{BLOCK}1/mlp/dense_1/0"][1],
        "num_classes": shapes.get("predictions/0", (None,))[-1],
        "classifier": "token" if token else "gap",
        "representation_size": shapes.get("pre_logits/0", (None,))[-1],
    }
    positions = shapes[f"{PATCHES}/position_embedding/0"][0]
    found |= architecture.guess_image_size(positions, (height, width), token)
    image_shape = config.get("config", {}).get("image_shape")
    return {**found, **({"image_size": tuple(image_shape[:2])} if image_shape else {})}


def numerics(config: dict) -> Numerics:
    epsilon = config.get("config", {}).get("layer_norm_epsilon", 1e-6)
    task = config.get("task.json", {}).get("config", {})
    converter = ((task.get("preprocessor") or {}).get("config", {})).get("image_converter") or {}
    return Numerics(
        layer_norm_epsilon=epsilon, preprocessing=_preprocessing(converter.get("config", {}))
    )


def _preprocessing(converter):
    """`x · scale + offset` of pixels in [0, 255] as a mean and a standard deviation."""
    scale, offset = (converter.get(key) for key in ("scale", "offset"))
    scale = 1 / 127.5 if scale is None else scale
    offset = (-1.0 if converter.get("scale") is None else 0.0) if offset is None else offset
    scales, offsets = ([v] if isinstance(v, float | int) else list(v) for v in (scale, offset))
    length = max(len(scales), len(offsets))
    scales, offsets = (v * (length // len(v)) for v in (scales, offsets))
    return Preprocessing(
        mean=tuple(-o / (255 * s) for s, o in zip(scales, offsets)),
        std=tuple(1 / (255 * s) for s in scales),
        interpolation=converter.get("interpolation", "bilinear"),
        antialias=converter.get("antialias", False),
        crop_fraction=1.0 if converter.get("crop_to_aspect_ratio", True) else None,
    )


def check(arch: architecture.Architecture) -> None:
    architecture.refuse_stem(arch, "KerasHub")
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


def tree(names: list[str], folder: bool) -> dict[str, dict[str, list[tuple[str, str | None]]]]:
    """`{file: {name: [(group, name of its layer), …]}}` in the groups that Keras looks for.

    A preset folder has the backbone and the head in two files; one file nests the backbone.
    """
    files = {}
    for name in names:
        *parts, _ = name.split("/")
        backbone = parts[0] in (PATCHES, ENCODER)
        groups = [pair for part in parts for pair in _groups(part, "pre_logits/0" in names)]
        if backbone and not folder:
            groups = [("layers", None), ("vi_t_backbone", "vi_t_backbone"), *groups]
        file = "model.weights.h5" if backbone or not folder else "task.weights.h5"
        files.setdefault(file, {})[name] = groups
    return files


def _groups(part, pre_logits):
    """The groups of one part of a name."""
    if part.startswith("transformer_block_"):
        index = int(part.rpartition("_")[2]) - 1
        key = "vi_t_encoder_block" + (f"_{index}" if index else "")
        return [("encoder_layers", None), (key, part)]
    if part in ("pre_logits", "predictions"):
        second = part == "predictions" and pre_logits
        return [("layers", None), ("dense_1" if second else "dense", part)]
    *containers, key = STRUCTURE.get(part, part).split("/")
    return [(container, None) for container in containers] + [(key, part)]


def folder(arch: architecture.Architecture, numerics: Numerics) -> dict[str, dict]:
    """A preset's JSON files, as `save_to_preset` of KerasHub 0.32 writes them."""
    backbone = _object(
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
        activation=None,
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


def _converter(arch, pixels):
    scale = [1 / (255 * s) for s in pixels.std]
    offset = [-m / s for m, s in zip(pixels.mean, pixels.std)]
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


FORMAT = Format(
    name="keras_hub",
    suffixes=(".weights.h5",),
    detect=detect,
    infer=infer,
    links=links,
    numerics=numerics,
    canonical=canonical,
    head=("predictions/", "pre_logits/"),
    check=check,
    folder=folder,
    tree=tree,
)
