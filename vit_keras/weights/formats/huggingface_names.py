"""The spellings of transformers' tensors, and those that a model has no use for."""

import re

# The prefixes of backbones in classes with a head, and of wrappers.
PREFIX = re.compile(
    r"^(module\.)?((vit|deit|beit|data2vec_vision|ijepa|dinov2|dinov2_with_registers|dinov3_vit|"
    r"vision_model)\.)?(model\.)?"
)
TABLE = "relative_position_bias"
_PROJECTIONS = {
    r"\.attention\.q_proj\.": ".attention.attention.query.",
    r"\.attention\.k_proj\.": ".attention.attention.key.",
    r"\.attention\.v_proj\.": ".attention.attention.value.",
    r"\.attention\.o_proj\.": ".attention.output.dense.",
}
# For names that begin so in memory, patterns and what replaces them on disk.
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
# The tower of text, the decoder of pre-training, and numbers that are computed.
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
    "pooler.dense.",
)


def canonical(name: str) -> str:
    """Translates to the name on disk, without the prefix of the classifier's backbone."""
    name = PREFIX.sub("", name)
    for start, patterns in IN_MEMORY.items():
        if name.startswith(start):
            for pattern, new in patterns.items():
                name = re.sub(pattern, new, name)
            break
    return f"{INDEX}.{name}" if name.endswith(f".{INDEX}") else name
