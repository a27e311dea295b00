"""One row for each of transformers' model types, and the spellings of its tensors."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from vit_keras.weights.formats.tensor_names import TensorNames

ANY: tuple = ()
# Defaults that most of the configuration classes share.
COMMON = {"num_attention_heads": 12, "hidden_act": "gelu", "qkv_bias": True}


def as_they_are(names: TensorNames, present) -> TensorNames:
    """Returns the names of a model type with a single spelling."""
    return names


@dataclasses.dataclass(frozen=True)
class ModelType:
    """One of transformers' model types.

    Attributes:
        name: The value of `model_type` in `config.json`.
        marks: Canonical names that identify its files without a configuration.
        names: The names of its tensors.
        classes: Maps the classifier's input and kind ("", "classifier" or "projection") to the name
            of the class for such a model.
        fields: The defaults of the fields of its configuration.
        design: Takes the canonical names of a file; returns the arguments of `VisionTransformer`
            that the type or the presence of tensors decides.
        says: Takes the fields of the configuration; returns the arguments that they determine.
        holds: The allowed values of options, `ANY` for all. Other options must have their defaults.
        needs: The options that must differ from their defaults.
        positions: The kinds of position embeddings.
        rule: Takes the fields of the configuration; returns the rule for resizing positions.
        processor: The name of its image processor.
        base: The prefix of tensors in classes with a head.
        outside: The prefixes of tensors without `base`.
        whole: The model type of a configuration with this one as `vision_config`.
        square: Whether images and patches must be square.
        spelling: Takes `names` and the names in a file; returns the row for the file's spelling.
        write: Takes an architecture; returns the type's special fields of the configuration.
        fillers: Takes an architecture; returns `{name: array}`, tensors that transformers requires
            although they have no effect.
    """

    name: str
    marks: tuple[str, ...]
    names: TensorNames
    classes: Mapping[tuple[str, str], str]
    fields: Mapping[str, Any]
    design: Callable[[set[str]], dict]
    says: Callable[[dict], dict]
    holds: Mapping[str, tuple]
    processor: str
    needs: tuple[str, ...] = ()
    positions: tuple[str, ...] = ("learned",)
    rule: Callable[[dict], str] = lambda fields: "bicubic"
    base: str = ""
    outside: tuple[str, ...] = ("classifier.",)
    whole: str = ""
    square: bool = False
    spelling: Callable[[TensorNames, set[str]], TensorNames] = as_they_are
    write: Callable[[Any], dict] = lambda arch: {}
    fillers: Callable[[Any], dict] = lambda arch: {}


# The prefixes of backbones in classes with a head.
PREFIX = re.compile(
    r"^((owlvit|owlv2)\.)?((vit|deit|beit|data2vec_vision|ijepa|dinov2|dinov2_with_registers|dinov3_vit|"
    r"vision_model)\.)?(model\.)?"
)
TABLE = "relative_position_bias"
_PROJECTIONS = {
    r"\.attention\.q_proj\.": ".attention.attention.query.",
    r"\.attention\.k_proj\.": ".attention.attention.key.",
    r"\.attention\.v_proj\.": ".attention.attention.value.",
    r"\.attention\.o_proj\.": ".attention.output.dense.",
}
# By the beginning of names in memory: patterns, and their replacements on disk.
IN_MEMORY = {
    "layers.": {
        r"^layers\.": "encoder.layer.",
        **_PROJECTIONS,
        r"\.mlp\.fc1\.": ".intermediate.dense.",
        r"\.mlp\.fc2\.": ".output.dense.",
        rf"^(encoder\.layer\.\d+\.){TABLE}\.": rf"\1attention.attention.{TABLE}.",
    },
    "encoder.layer.": _PROJECTIONS,
    "shared_position_bias.": {r"^shared_position_bias\.": f"encoder.{TABLE}."},
}
INDEX = "relative_position_index"
# The text tower, the pre-training decoder, and computed numbers.
IGNORED = (
    "text_model.",
    "text_projection.",
    "logit_",
    "decoder.",
    "lm_head.",
    "embeddings.mask_token",
    "embeddings.position_ids",
    "rope_embeddings.",
    f"{INDEX}.",
)
HEADS = (
    "classifier.",
    "cls_classifier.",
    "distillation_classifier.",
    "visual_projection.",
    "class_labels_classifier.",
    "bbox_predictor.",
    "class_head.",
    "box_head.",
    "objectness_head.",
    "layer_norm.",
    "pooler.dense.",
)


def canonical(name: str) -> str:
    """Translates a name to the one on disk, without the prefix of a classifier's backbone."""
    name = name.replace("vision_model.encoder.layer.", "encoder.layers.")  # AltCLIP in version 5
    name = PREFIX.sub("", name)
    for start, patterns in IN_MEMORY.items():
        if name.startswith(start):
            for pattern, new in patterns.items():
                name = re.sub(pattern, new, name)
            break
    return f"{INDEX}.{name}" if name.endswith(f".{INDEX}") else name
