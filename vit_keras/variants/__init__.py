"""The table of variants, one row per variant.

The variants come from Table 1 of the paper (B, L, H), from AugReg (Ti and S, arXiv 2106.10270),
from Figure 4 (b, the halved B), from both papers (hybrids), and from BiT (ResNets,
arXiv 1912.11370). Scaling Vision Transformers (arXiv 2106.04560) adds g and G, PaLI
(arXiv 2209.06794) adds e, and Getting ViT in Shape (arXiv 2305.13035) adds So400m. Their code,
big_vision, adds mu, M and the shape-optimized g-opt and G-opt. The variants of other families, such
as "DINOv2-S/14", come from the rows in `vit_keras.variants.families`.
"""

import difflib
from typing import Any

from vit_keras.variants import families
from vit_keras.variants.sizes import (
    ROOT_WIDTH,
    SIZES,
    FamilyVariant,
    HybridVariant,
    ResNetVariant,
    Variant,
    sized,
    stem_stride,
)

DEFAULT = "B/16"  # the variant of a run that does not name one

VISION_TRANSFORMERS = sized(
    "Ti/16 S/16 S/32 b/32 B/8 B/16 B/32 L/16 L/32 H/14 mu/16 M/16 So400m/14 g/14 g-opt/16 G/14 "
    "G-opt/16 e/14"
)
HYBRIDS = {
    # A token of R+Ti/16 has 32 pixels, despite the name.
    "R+Ti/16": HybridVariant(8, *SIZES["Ti"], resnet_layers=()),
    "R26+S/32": HybridVariant(1, *SIZES["S"], resnet_layers=(2, 2, 2, 2)),
    "R26+B/32": HybridVariant(1, *SIZES["B"], resnet_layers=(2, 2, 2, 2)),
    "R50+B/16": HybridVariant(1, *SIZES["B"], resnet_layers=(3, 4, 9)),
    "R50+B/32": HybridVariant(1, *SIZES["B"], resnet_layers=(3, 4, 6, 3)),
    "R50+L/16": HybridVariant(1, *SIZES["L"], resnet_layers=(3, 4, 9)),
    "R50+L/32": HybridVariant(1, *SIZES["L"], resnet_layers=(3, 4, 6, 3)),
}
UNITS = {"R50": (3, 4, 6, 3), "R101": (3, 4, 23, 3), "R152": (3, 8, 36, 3), "R200": (3, 24, 36, 3)}
RESNETS = {
    f"{depth}x{width}": ResNetVariant(UNITS[depth], width)
    for depth, widths in {"R50": (1, 2, 3), "R101": (1, 3), "R152": (1, 2, 4), "R200": (3,)}.items()
    for width in widths
}
PAPER: dict[str, Variant | ResNetVariant] = {**VISION_TRANSFORMERS, **HYBRIDS, **RESNETS}
VARIANTS: dict[str, Variant | ResNetVariant] = {**PAPER, **families.VARIANTS}


def get(name: str) -> Variant | ResNetVariant:
    """Returns a row of the table.

    Args:
        name: The name of a variant, such as "B/16", "R50+L/32", "R101x1" or "DINOv2-S/14".

    Returns:
        A `Variant`, `FamilyVariant`, `HybridVariant` or `ResNetVariant`.

    Raises:
        ValueError: If there is no such variant. The message lists the names, the nearest last.

    Example:
        ```python
        vit_keras.variants.get("B/16").hidden_size  # 768
        ```
    """
    if name in VARIANTS:
        return VARIANTS[name]
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if (near := nearest(name)) else ""
    raise ValueError(
        f"`variant` must be one of {', '.join(map(repr, PAPER))}, or a family and its size, such "
        f"as 'DINOv2-S/14'; the families are {', '.join(families.FAMILIES)}. "
        f"Received: variant={name!r}.{hint}"
    )


def nearest(name: str) -> list[str]:
    """Returns variants with this name in other projects or with similar names, the nearest first.

    Example:
        >>> nearest("vit_base_patch16_224")
        ['B/16']
        >>> nearest("facebook/dinov2-small")
        ['DINOv2-S/14']
    """
    family, written = families.family_called(name), families.words_of(name)
    rows = dict(families.FAMILIES[family].variants()) if family else PAPER
    words = {key: families.words_of(key) for key in rows}
    fits = {key: len(words[key] & written) - len(words[key] - written) for key in rows}
    fits = {key: fit for key, fit in fits.items() if family or words[key] <= written}
    same = [key for key, fit in fits.items() if fit == max(fits.values())]
    return same[:3] or difflib.get_close_matches(str(name), VARIANTS, n=3, cutoff=0.4)


def architecture(variant: str, /, **overrides: Any) -> dict[str, Any]:
    """Returns the arguments of a variant's constructor in `vit_keras.models`.

    Args:
        variant: The name of a variant, such as "B/16". A family's variant adds the arguments
            that differ from the paper's model, and the published `image_size` and `num_classes`.
        **overrides: Arguments to add or replace.

    Raises:
        ValueError: If there is no such variant.

    Example:
        ```python
        arguments = vit_keras.variants.architecture("B/16", image_size=224, num_classes=10)
        model = vit_keras.models.VisionTransformer(**arguments)
        ```
    """
    return {**get(variant).constructor_arguments(), **overrides}


__all__ = [
    "DEFAULT",
    "PAPER",
    "RESNETS",
    "ROOT_WIDTH",
    "VARIANTS",
    "VISION_TRANSFORMERS",
    "FamilyVariant",
    "HybridVariant",
    "ResNetVariant",
    "Variant",
    "architecture",
    "get",
    "nearest",
    "stem_stride",
]
