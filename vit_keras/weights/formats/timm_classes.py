"""Which of timm's classes can hold a model, and in words why none can."""

from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.timm_names import is_eva

POOLED = ("token", "gap", "gap_norm", "map")
STEM = ("class_token", "num_registers", "position_cover", "crop_to_patches", "pre_norm")
# The options that each class holds, the classifiers, and the kinds of GELU and norms.
HOLDS: dict[str, dict[str, tuple]] = {
    "VisionTransformer": {
        "options": (
            *STEM,
            "final_norm",
            "pool_all_tokens",
            "qkv_bias",
            "qk_norm",
            "attention_norm",
            "mlp",
            "mlp_norm",
            "norm",
            "layer_scale",
            "head_use_bias",
        ),
        "classifier": POOLED,
        "gelu": ("exact", "tanh", "quick"),
    },
    "VisionTransformerDistilled": {
        "options": (
            "distillation_token",
            "crop_to_patches",
            "qkv_bias",
            "qk_norm",
            "attention_norm",
            "mlp_norm",
            "layer_scale",
        ),
        "classifier": ("distilled", "token"),
        "gelu": ("exact", "tanh", "quick"),
    },
    "Eva": {
        "options": (
            *STEM,
            "final_norm",
            "pool_all_tokens",
            "map_heads",
            "map_mlp_dim",
            "qkv_bias",
            "qk_norm",
            "attention_norm",
            "mlp",
            "mlp_norm",
            "layer_scale",
            "rope",
            "head_use_bias",
        ),
        "classifier": POOLED,
        "gelu": ("exact",),
    },
    "Beit": {
        "options": (
            "class_token",
            "crop_to_patches",
            "qkv_bias",
            "mlp",
            "mlp_norm",
            "layer_scale",
            "head_use_bias",
        ),
        "classifier": ("token", "gap", "gap_norm"),
        "gelu": ("exact",),
    },
}
HOLDS["ParallelScalingBlock"] = {
    **HOLDS["VisionTransformer"],
    "options": tuple(
        name
        for name in (*HOLDS["VisionTransformer"]["options"], "parallel")
        if name not in ("mlp", "mlp_norm", "attention_norm")
    ),
}


def timm_class(arch: VisionTransformerArchitecture) -> str:
    """Returns the name of the class that a model is written for, a key of `HOLDS`."""
    if arch.position_embedding == "relative_2d":
        return "Beit"
    if arch.options.parallel:
        return "ParallelScalingBlock"
    if "dist" in arch.prefix.names:
        return "VisionTransformerDistilled"
    return "Eva" if is_eva(arch) else "VisionTransformer"


def check(arch: VisionTransformerArchitecture) -> None:
    """Raises ValueError, in words, for a model that no class of timm can hold."""
    if arch.representation_size is not None:
        raise ValueError(
            "timm's Vision Transformer has no hidden layer `pre_logits` before its head. "
            f"Received: representation_size={arch.representation_size}; torchvision's has one"
        )
    name = timm_class(arch)
    row, changed = HOLDS[name], arch.options.changed()
    refused = {key: value for key, value in changed.items() if key not in row["options"]}
    for key in ("classifier", "gelu"):
        if getattr(arch, key) not in row[key]:
            refused[key] = getattr(arch, key)
    for key, reason in _contradictions(arch, name):
        if reason:
            refused[key] = getattr(arch.options, key)
    if refused:
        received = ", ".join(f"{key}={value!r}" for key, value in refused.items())
        raise ValueError(
            f"timm's class {name} is the one for this model, and has no place for {received}. "
            "Save it as .keras or .weights.h5, or in the format of its family"
        )


def _contradictions(arch, name):
    """Options that a class holds, but not together with others of the model."""
    options = arch.options
    is_plain, prefix = name in ("VisionTransformer", "ParallelScalingBlock"), arch.prefix.count
    lacks_head = arch.classifier != "distilled" and arch.num_classes is not None
    yield "distillation_token", name == "VisionTransformerDistilled" and lacks_head
    yield "mlp_norm", is_plain and options.mlp == "swiglu" and options.mlp_norm
    yield "qkv_bias", name == "Beit" and options.qkv_bias == "all"
    yield "class_token", name == "Beit" and "cls" not in arch.prefix.names
    all_tokens = name != "Eva" or arch.classifier != "map" or not prefix
    yield "pool_all_tokens", not all_tokens and not options.pool_all_tokens
    rope = options.rope
    yield "rope", rope is not None and rope.centered and rope.offset != 0.0
