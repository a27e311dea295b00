"""The table of families: other plain Vision Transformers as rows over one constructor."""

import re
from collections.abc import Iterable

from vit_keras.variants.families import detection, labeled, language, unlabeled
from vit_keras.variants.families.family import Family
from vit_keras.variants.rows import FamilyVariant

FAMILIES: dict[str, Family] = {
    row.key: row for module in (language, unlabeled, labeled, detection) for row in module.FAMILIES
}
VARIANTS = {name: row for family in FAMILIES.values() for name, row in family.variants()}


def family_of(variant: FamilyVariant) -> Family:
    """Returns the family that a variant belongs to.

    Example:
        ```python
        families.family_of(vit_keras.variants.get("MAE-B/16")).license  # "CC-BY-NC-4.0"
        ```
    """
    return FAMILIES[variant.family]


def spelled(name: str) -> list[str]:
    """Returns the variants of families with this name in other projects, at most three.

    Example:
        ```python
        vit_keras.variants.families.spelled("vit_base_patch16_siglip_224")  # ["SigLIP-B/16"]
        ```
    """
    return spelled_as(name, ((key, row.family, row.size) for key, row in VARIANTS.items()))


# Patterns for lowercase names, with their families; the first match counts.
FAMILY_WORDS = (
    (r"yolos", "YOLOS"),
    (r"owl_?-?v2", "OWLv2"),
    (r"owl", "OWLViT"),
    (r"siglip-?2(?!\d)|siglip.*v2", "SigLIP2"),
    (r"siglip", "SigLIP"),
    (r"dino_?-?v3", "DINOv3"),
    (r"dino_?-?v2.*reg|reg.*dino_?-?v2", "DINOv2-reg"),
    (r"dino_?-?v2", "DINOv2"),
    (r"dino", "DINO"),
    (r"eva_?-?02", "EVA02"),
    (r"beit_?-?v2", "BEiTv2"),
    (r"beit", "BEiT"),
    (r"deit_?-?(3|iii)", "DeiTIII"),
    (r"deit.*distilled", "DeiT-distilled"),
    (r"deit", "DeiT"),
    (r"flexivit", "FlexiViT"),
    (r"(^|[_/-])pe[_-]?core", "PE-Core"),
    (r"i-?_?jepa", "IJEPA"),
    (r"(^|[._-])mae", "MAE"),
    (r"laion|open_?-?clip", "OpenCLIP"),
    (r"clip", "CLIP"),
    (r"reg4", "ViT-reg4"),
)
# The same for sizes.
SIZE_WORDS = (
    (r"so_?400m", "So400m"),
    (r"so150m", "So150m"),
    (r"betwixt", "betwixt"),
    (r"bigg|gigantic", "G"),
    (r"giant-?_?opt|g-?opt", "g-opt"),
    (r"giant", "g"),
    (r"huge_?-?plus|vith\d*plus", "H+"),
    (r"small_?-?plus|vits\d*plus", "S+"),
    (r"7b", "7B"),
    (r"huge|vit-?_?h|-h\b", "H"),
    (r"large|vit-?_?l|-l\b", "L"),
    (r"base|vit-?_?b|-b\b", "B"),
    (r"medium|-m\b", "M"),
    (r"small|vit-?_?s|-s\b", "S"),
    (r"tiny|vit-?_?ti|-ti\b", "Ti"),
    (r"vit-?_?g|-g\b", "g"),
)


def family_called(name: str) -> str | None:
    """Returns the key of the family that a name refers to, or None."""
    return _first(FAMILY_WORDS, str(name).lower())


def spelled_as(name: str, variants: Iterable[tuple[str, str, str]]) -> list[str]:
    """Returns the variants with this name in other projects.

    Args:
        name: A name such as "facebook/dinov2-small" or "vit_base_patch16_siglip_224".
        variants: (name, key of the family, name of the size) of each variant.

    Returns:
        The names of the variants; empty if the name does not belong to a family.
    """
    text = str(name).lower()
    family = family_called(name)
    text = re.sub(r"deit|beit|siglip|clip|flexivit", "-", text)
    size = _first(SIZE_WORDS, text)
    patch = re.search(r"(?:patch|vit-?_?\w|[/])_?-?(8|14|16|32)(?!\d)", text)
    rows = [row for row in variants if row[1] == family]
    rows = [
        row for row in rows if size in (None, row[2].partition("/")[0].removeprefix("big"))
    ] or rows
    same = [row for row in rows if patch and row[2].endswith(f"/{patch[1]}")]
    return [row[0] for row in same or rows][:3]


def _first(table, text):
    return next((word for pattern, word in table if re.search(pattern, text)), None)


__all__ = ["FAMILIES", "VARIANTS", "Family", "family_called", "family_of", "spelled"]
