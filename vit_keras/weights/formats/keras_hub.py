"""KerasHub's `ViTImageClassifier` and `ViTBackbone`: preset folders and `.weights.h5`.

Kernels have the layouts of this package, which has no classifier that averages the class token
with the patches.
"""

import re

from vit_keras.models import Preprocessing
from vit_keras.weights.architectures import (
    VisionTransformerArchitecture,
    count_blocks,
    guess_image_size,
)
from vit_keras.weights.formats import keras_hub_preset as preset
from vit_keras.weights.formats.base import Format, Link, Numerics, refuse_hybrid, reshaped, same

PATCHES, ENCODER = preset.PATCHES, preset.ENCODER
BLOCK = f"{ENCODER}/transformer_block_"


def canonical(name: str) -> str:
    """Removes the name of the backbone."""
    return re.sub(rf"^.*?({PATCHES}|{ENCODER})/", r"\1/", name)


def detect(names: set[str]) -> bool:
    return {f"{PATCHES}/patch_embedding/0", f"{BLOCK}1/mha/query/0"} <= names


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
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
    return result


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
    token = f"{PATCHES}/0" in shapes
    task = config.get("task.json", {}).get("config", {})
    if token and task.get("pooling") == "gap":
        raise ValueError(
            'KerasHub\'s pooling="gap" averages the class token with the patches if '
            "use_class_token=True; no classifier of this package does so. Received: such a file"
        )
    arguments = {
        "patch_size": (height, width),
        "channels": channels,
        "hidden_size": hidden_size,
        "num_layers": count_blocks(shapes, BLOCK),
        "num_heads": shapes[f"{BLOCK}1/mha/query/0"][1],
        "mlp_dim": shapes[f"{BLOCK}1/mlp/dense_1/0"][1],
        "num_classes": shapes.get("predictions/0", (None,))[-1],
        "classifier": "token" if token else "gap",
        "representation_size": shapes.get("pre_logits/0", (None,))[-1],
    }
    positions = shapes[f"{PATCHES}/position_embedding/0"][0]
    arguments |= guess_image_size(positions, (height, width), token)
    image_shape = config.get("config", {}).get("image_shape")
    return arguments | ({"image_size": tuple(image_shape[:2])} if image_shape else {})


def numerics(config: dict) -> Numerics:
    epsilon = config.get("config", {}).get("layer_norm_epsilon", 1e-6)
    task = config.get("task.json", {}).get("config", {})
    converter = ((task.get("preprocessor") or {}).get("config", {})).get("image_converter") or {}
    return Numerics(
        layer_norm_epsilon=epsilon, preprocessing=_preprocessing(converter.get("config", {}))
    )


def _preprocessing(converter):
    """Turns `x · scale + offset` of pixels in [0, 255] into a mean and a standard deviation."""
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
    head=("predictions/", "pre_logits/"),
    check=check,
    config_files=preset.config_files,
    h5_groups=preset.h5_groups,
)
