"""The table of families: other plain Vision Transformers as rows over one constructor."""

from vit_keras.variants.families import labeled, language, unlabeled
from vit_keras.variants.families.family import Family
from vit_keras.variants.families.spellings import family_called, spelled_as
from vit_keras.variants.rows import FamilyVariant

FAMILIES: dict[str, Family] = {
    row.key: row for row in (*language.FAMILIES, *unlabeled.FAMILIES, *labeled.FAMILIES)
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
    """Returns the variants of families that other projects call so, at most three.

    Example:
        ```python
        vit_keras.variants.families.spelled("vit_base_patch16_siglip_224")  # ["SigLIP-B/16"]
        ```
    """
    return spelled_as(name, ((key, row.family, row.size) for key, row in VARIANTS.items()))


__all__ = ["FAMILIES", "VARIANTS", "Family", "family_called", "family_of", "spelled"]
