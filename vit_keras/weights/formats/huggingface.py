"""Hugging Face's `ViTForImageClassification` and `ViTModel`, with their `config.json`.

Files have the names that transformers writes to disk; the names that transformers 5 has in memory
are read as well. The pooler of a `ViTModel` becomes `pre_logits`. A mask token is left out.
"""

import re

from vit_keras.models import Preprocessing
from vit_keras.resizing import Resizing
from vit_keras.weights.architectures import (
    VisionTransformerArchitecture,
    count_blocks,
    guess_image_size,
)
from vit_keras.weights.formats.base import Format, Link, Numerics, refuse_hybrid, same
from vit_keras.weights.formats.torch_layouts import conv, dense, heads_in, heads_out, norm

GELU = {"gelu": "exact", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}
RESIZING = Resizing("bicubic", "bicubic")
PIL_RESAMPLE = {"bilinear": 2, "bicubic": 3}
# Patterns of the names in memory, and what replaces them on disk.
IN_MEMORY = {
    r"^(layers\.\d+\.)": r"encoder.\1",
    r"^encoder\.layers\.": "encoder.layer.",
    r"\.attention\.q_proj\.": ".attention.attention.query.",
    r"\.attention\.k_proj\.": ".attention.attention.key.",
    r"\.attention\.v_proj\.": ".attention.attention.value.",
    r"\.attention\.o_proj\.": ".attention.output.dense.",
    r"\.mlp\.fc1\.": ".intermediate.dense.",
    r"\.mlp\.fc2\.": ".output.dense.",
}


def canonical(name: str) -> str:
    """Translates to the name on disk, without the prefix of the classifier's backbone."""
    name = re.sub(r"^(module\.)?(vit\.)?", "", name)
    for pattern, new in IN_MEMORY.items():
        name = re.sub(pattern, new, name)
    return name


def detect(names: set[str]) -> bool:
    return {
        "embeddings.patch_embeddings.projection.weight",
        "encoder.layer.0.attention.attention.query.weight",
    } <= names


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    prefix = "vit." if names is None and arch.num_classes is not None else ""
    embeddings = f"{prefix}embeddings"
    result = conv(f"{embeddings}.patch_embeddings.projection", "embedding")
    result += [same(f"{embeddings}.cls_token", "cls/cls")]
    result += [same(f"{embeddings}.position_embeddings", "posembed_input/pos_embedding")]
    for i in range(arch.num_layers):
        result += _block(f"{prefix}encoder.layer.{i}", f"encoderblock_{i}", arch.num_heads)
    result += norm(f"{prefix}layernorm", "encoder_norm")
    if arch.representation_size is not None:
        result += dense(f"{prefix}pooler.dense", "pre_logits")
    return result + (dense("classifier", "head") if arch.num_classes is not None else [])


def _block(old, new, num_heads):
    attention = f"{new}/MultiHeadDotProductAttention_1"
    projections = [
        link
        for part in ("query", "key", "value")
        for link in heads_in(f"{old}.attention.attention.{part}", f"{attention}/{part}", num_heads)
    ]
    return [
        *norm(f"{old}.layernorm_before", f"{new}/LayerNorm_0"),
        *projections,
        *heads_out(f"{old}.attention.output.dense", f"{attention}/out", num_heads),
        *norm(f"{old}.layernorm_after", f"{new}/LayerNorm_2"),
        *dense(f"{old}.intermediate.dense", f"{new}/MlpBlock_3/Dense_0"),
        *dense(f"{old}.output.dense", f"{new}/MlpBlock_3/Dense_1"),
    ]


def infer(shapes: dict, config: dict) -> dict:
    kernel = shapes["embeddings.patch_embeddings.projection.weight"]
    arguments = {
        "patch_size": tuple(kernel[2:]),
        "channels": kernel[1],
        "hidden_size": kernel[0],
        "num_layers": count_blocks(shapes, "encoder.layer."),
        "mlp_dim": shapes["encoder.layer.0.intermediate.dense.weight"][0],
        "num_classes": shapes.get("classifier.weight", (None,))[0],
        "classifier": "token",
        "representation_size": shapes.get("pooler.dense.weight", (None,))[0],
    }
    positions = shapes["embeddings.position_embeddings"][1]
    arguments |= guess_image_size(positions, arguments["patch_size"], True)
    if "num_attention_heads" in config:
        arguments["num_heads"] = config["num_attention_heads"]
    if "image_size" in config:
        size = config["image_size"]
        arguments["image_size"] = (size, size) if isinstance(size, int) else tuple(size)
    return arguments


def numerics(config: dict) -> Numerics:
    activation = config.get("hidden_act", "gelu")
    if activation not in GELU:
        raise ValueError(
            f"`hidden_act` must be one of {', '.join(map(repr, GELU))}. Received: {activation!r}"
        )
    labels = {int(i): name for i, name in config.get("id2label", {}).items()}
    names = tuple(labels[i] for i in sorted(labels))
    generic = all(name == f"LABEL_{i}" for i, name in enumerate(names))
    return Numerics(
        gelu=GELU[activation],
        layer_norm_epsilon=config.get("layer_norm_eps", 1e-12),
        preprocessing=_preprocessing(config.get("preprocessor_config.json", {})),
        resizing=RESIZING,
        class_names=None if generic else names,
    )


def _preprocessing(config):
    size, crop = config.get("size", {}), config.get("crop_size", {})
    fraction = None
    if config.get("do_center_crop") and "shortest_edge" in size:
        fraction = crop.get("height", size["shortest_edge"]) / size["shortest_edge"]
    names = {number: name for name, number in PIL_RESAMPLE.items()}
    return Preprocessing(
        mean=tuple(config.get("image_mean", (0.5, 0.5, 0.5))),
        std=tuple(config.get("image_std", (0.5, 0.5, 0.5))),
        interpolation=names.get(config.get("resample", 2), "bilinear"),
        antialias=True,
        crop_fraction=fraction,
    )


def check(arch: VisionTransformerArchitecture) -> None:
    refuse_hybrid(arch, "Hugging Face")
    if arch.classifier != "token":
        raise ValueError(
            'Hugging Face\'s ViT must have classifier "token". '
            f"Received: classifier={arch.classifier!r}"
        )
    if arch.num_classes is not None and arch.representation_size is not None:
        raise ValueError(
            "ViTForImageClassification has no hidden layer `pre_logits` before its classifier. "
            f"Received: representation_size={arch.representation_size}; a model with "
            "num_classes=None is saved as a ViTModel with that layer as its pooler"
        )


def config_files(arch: VisionTransformerArchitecture, numerics: Numerics) -> dict[str, dict]:
    height, width = arch.image_size
    square = height == width
    patch_height, patch_width = arch.patch_size
    config = {
        "architectures": ["ViTModel" if arch.num_classes is None else "ViTForImageClassification"],
        "model_type": "vit",
        "hidden_size": arch.hidden_size,
        "num_hidden_layers": arch.num_layers,
        "num_attention_heads": arch.num_heads,
        "intermediate_size": arch.mlp_dim,
        "hidden_act": "gelu" if arch.gelu == "exact" else "gelu_pytorch_tanh",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "layer_norm_eps": arch.layer_norm_epsilon,
        "image_size": height if square else [height, width],
        "patch_size": patch_height if patch_height == patch_width else list(arch.patch_size),
        "num_channels": arch.channels,
        "qkv_bias": True,
        "dtype": "float32",
    }
    if arch.representation_size is not None:
        config |= {"pooler_output_size": arch.representation_size, "pooler_act": "tanh"}
    if arch.num_classes is not None:
        names = numerics.class_names or [f"LABEL_{i}" for i in range(arch.num_classes)]
        config["id2label"] = {str(i): name for i, name in enumerate(names)}
        config["label2id"] = {name: i for i, name in enumerate(names)}
    return {"config.json": config, "preprocessor_config.json": _processor(arch, numerics)}


def _processor(arch, numerics):
    """The settings of `ViTImageProcessor`."""
    pixels, (height, width) = numerics.preprocessing, arch.image_size
    config = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": PIL_RESAMPLE[pixels.interpolation],
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(pixels.mean) * (arch.channels if len(pixels.mean) == 1 else 1),
        "image_std": list(pixels.std) * (arch.channels if len(pixels.std) == 1 else 1),
    }
    if pixels.crop_fraction is not None:
        config["do_center_crop"] = True
        config["size"] = {"shortest_edge": round(min(height, width) / pixels.crop_fraction)}
        config["crop_size"] = {"height": height, "width": width}
    return config


FORMAT = Format(
    name="huggingface",
    suffixes=(".safetensors", ".bin"),
    detect=detect,
    infer=infer,
    links=links,
    numerics=numerics,
    canonical=canonical,
    head=("classifier.", "pooler."),
    ignored=("embeddings.mask_token",),
    check=check,
    config_files=config_files,
)
