"""How timm computes, resizes and prepares images."""

import dataclasses
from typing import Any

from vit_keras.models import Preprocessing
from vit_keras.resizing import Resizing
from vit_keras.weights.formats.base import Numerics
from vit_keras.weights.formats.timm_architectures import pretrained_of, timm_arguments
from vit_keras.weights.formats.timm_names import is_packed
from vit_keras.weights.formats.timm_reading import arguments_of
from vit_keras.weights.formats.timm_resizing import resizing_of

# timm's names of activations. Gated MLPs have SiLU, whatever their architecture says.
GELUS = {
    "gelu": "exact",
    "gelu_tanh": "tanh",
    "gelu_pytorch_tanh": "tanh",
    "quick_gelu": "quick",
}


def numerics(config: dict) -> Numerics:
    """Returns how timm computes and prepares images, as a configuration says."""
    source = pretrained_of(config)
    crop = source.get("crop_pct", 0.9)
    preprocessing = Preprocessing(
        mean=tuple(source.get("mean", (0.5, 0.5, 0.5))),
        std=tuple(source.get("std", (0.5, 0.5, 0.5))),
        interpolation=source.get("interpolation", "bicubic"),
        antialias=True,
        crop_fraction=None if source.get("crop_mode") == "squash" and crop == 1 else crop,
        rounding="torchvision",
    )
    labels = config.get("label_names")
    return Numerics(
        preprocessing=preprocessing,
        standardization="timm",
        group_norm_epsilon=1e-5,
        class_names=None if labels is None else tuple(labels),
        **_computation(timm_arguments(config)),
    )


def refine(numerics: Numerics, shapes: dict, config: dict) -> Numerics:
    """Returns numerics with what the tensors show where no architecture is known.

    Raises:
        ValueError: The MLP has an activation that `VisionTransformer` does not have.
    """
    theirs = arguments_of(config, shapes)
    act = theirs["act_layer"]
    is_gated = "blocks.0.mlp.fc1_g.weight" in shapes or is_packed(shapes)
    if act not in GELUS and not is_gated:
        raise ValueError(
            f"The activation of timm's MLPs must be one of {', '.join(map(repr, GELUS))}. "
            f"Received: act_layer={act!r}"
        )
    return dataclasses.replace(numerics, **_computation(theirs))


def _computation(theirs) -> dict[str, Any]:
    return {
        "gelu": GELUS.get(theirs["act_layer"], "exact"),
        "layer_norm_epsilon": theirs["norm_eps"],
        "resizing": _resizing(theirs),
    }


def _resizing(theirs):
    mode = theirs.get("pos_embed_interp_mode")
    if mode is None:
        return resizing_of(theirs["architecture"])
    plain = {"bilinear": "bilinear_half_pixel", "bicubic": "bicubic"}[mode]
    positions = f"{mode}_antialias" if theirs["pos_embed_antialias"] else plain
    return Resizing(positions, f"{mode}_antialias")


def license_of(config: dict) -> str | None:
    """Returns the license that a timm configuration names, such as "apache-2.0"; None for none."""
    name = pretrained_of(config).get("license")
    return name if isinstance(name, str) else None
