"""The table of transformers' model types, and how to find that of a file or model."""

from typing import Any

from vit_keras.weights.containers.checks import UnreadModel
from vit_keras.weights.formats.huggingface import clip, dino, vit
from vit_keras.weights.formats.huggingface.model_type import ModelType

# Types with more marks come first, so the first type whose marks a file has is the right one.
MODEL_TYPES: dict[str, ModelType] = {
    row.name: row for module in (vit, dino, clip) for row in module.TYPES
}
# Configurations with the image tower's as `vision_config`, and other names of the same types.
TOWERS = {
    **{row.whole: row.name for row in MODEL_TYPES.values() if row.whole},
    "data2vec-vision": "beit",
    **dict.fromkeys(("metaclip_2", "chinese_clip", "altclip"), "clip_vision_model"),
    "metaclip_2_vision_model": "clip_vision_model",
    "chinese_clip_vision_model": "clip_vision_model",
    "altclip_vision_model": "clip_vision_model",
    "idefics_vision": "clip_vision_model",
    **dict.fromkeys(
        ("idefics2_vision", "idefics3_vision", "smolvlm_vision"), "siglip_vision_model"
    ),
}


def is_part(config: dict) -> bool:
    """Whether the image tower is a part of a larger model, such as LLaVA."""
    return isinstance(config.get("vision_config"), dict) and config.get("model_type") not in TOWERS


def tower_config(config: dict) -> dict:
    """Returns the configuration of the image tower, with the labels from the outer one."""
    tower = config.get("vision_config")
    if not isinstance(tower, dict):
        return config
    labels = {key: config[key] for key in ("id2label",) if key in config}
    whole = TOWERS.get(config.get("model_type", ""), config.get("model_type"))
    if is_part(config) and TOWERS.get(part := tower.get("model_type", ""), part) in MODEL_TYPES:
        whole = part
    kept = {key: value for key, value in config.items() if key.endswith(".json")}
    inner = config.get("vision_config_dict") or tower  # in old files
    return {**kept, **inner, **labels, "model_type": whole}


def model_type_of(config: dict, names: set[str]) -> ModelType:
    """Returns the type that a configuration names, or else the type of a file's tensors.

    Raises:
        ValueError: If there is no such type, or if the file's tensors belong to another type.
    """
    name = tower_config(config).get("model_type")
    if name is None:
        return by_names(names)
    name = TOWERS.get(name, name)
    if name not in MODEL_TYPES:
        raise UnreadModel(
            f"`model_type` in config.json must be one of {', '.join(map(repr, MODEL_TYPES))}. "
            f"Received: {name!r}"
        )
    row = MODEL_TYPES[name]
    if names and row.marks[0] not in names:
        raise ValueError(
            f"config.json says model_type={name!r}, whose files have a tensor {row.marks[0]!r}. "
            f"Received: a file with the tensors of {by_names(names).name!r}"
        )
    return row


def is_known(names: set[str]) -> bool:
    """Whether a file with canonical `names` has the tensors of one of the types."""
    return any(
        {row.marks[0], f"{row.names.patches}.weight"} <= names for row in MODEL_TYPES.values()
    )


def by_names(names: set[str]) -> ModelType:
    """Returns the first type that matches a file with known names."""
    rows = [row for row in MODEL_TYPES.values() if row.marks[0] in names]
    marked = [row for row in rows if names.issuperset(row.marks)]
    # I-JEPA has the names of a ViT, but no class token.
    whole = [row for row in marked if row.name == "ijepa" or row.names.cls in {"", *names}]
    return (whole or marked or rows)[0]


def fields_of(row: ModelType, config: dict) -> dict[str, Any]:
    """Returns the fields of a configuration, with the type's defaults for absent ones."""
    tower = tower_config(config)
    return {**row.fields, **{key: value for key, value in tower.items() if value is not None}}


def type_for(arch, naflex: bool = False) -> ModelType:
    """Returns the type to write a model of this architecture as.

    Args:
        arch: The architecture.
        naflex: Whether positions are resized as in SigLIP 2's NaFlex.
    """
    return MODEL_TYPES[next(name for test, name in _TYPES if test(arch, arch.options, naflex))]


_TYPES = (
    (lambda arch, options, naflex: options.rope is not None, "dinov3_vit"),
    (lambda arch, options, naflex: options.pre_norm, "clip_vision_model"),
    (lambda arch, options, naflex: arch.classifier == "map" and naflex, "siglip2_vision_model"),
    (lambda arch, options, naflex: arch.classifier == "map", "siglip_vision_model"),
    (lambda arch, options, naflex: _is_beit(arch, options), "beit"),
    (lambda arch, options, naflex: _is_yolos(arch, options), "yolos"),
    (lambda arch, options, naflex: "dist" in arch.prefix.names, "deit"),
    (lambda arch, options, naflex: options.num_registers, "dinov2_with_registers"),
    (lambda arch, options, naflex: _is_dinov2(arch, options), "dinov2"),
    (lambda arch, options, naflex: arch.classifier == "gap", "ijepa"),
    (lambda arch, options, naflex: not _has_layer_after(arch), "vit_msn"),
    (lambda arch, options, naflex: True, "vit"),
)


def _is_beit(arch, options):
    return arch.position_embedding.endswith("relative_2d") or options.qkv_bias == "qv"


def _is_yolos(arch, options):
    every = arch.position_embedding_at == "every"
    plain = options.position_cover == "all" and options.layer_scale is None
    return options.boxes == "tokens" or every or (options.num_registers > 0 and plain)


def _is_dinov2(arch, options):
    return (
        options.layer_scale is not None or arch.classifier == "token_gap" or options.mlp != "gelu"
    )


def _has_layer_after(arch):
    """Whether there is a classifier, or the pooler of a `ViTModel`."""
    return arch.num_classes is not None or arch.representation_size is not None
