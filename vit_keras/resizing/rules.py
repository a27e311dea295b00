"""The rules by which the code of a publisher resizes weights."""

import dataclasses
from typing import Any

from vit_keras.annotated import check_types
from vit_keras.resizing.interpolation import interpolation_rule


@dataclasses.dataclass(frozen=True)
class Resizing:
    """The rules for position embeddings on other grids and for patch kernels of other sizes.

    The defaults are the rules of the published ViT code, and of FlexiViT for kernels.

    Attributes:
        positions: The name of a rule in `INTERPOLATIONS`, or "bilinear_geometric" for biases.
        patches: The name of the rule that resizes patches, see `resample_patch_kernel`.
        crops: Whether images of any size are taken, of which the pixels at the right and at the
            bottom that fill no patch are left out, as by a convolution without padding.

    Raises:
        ValueError: If there is no such rule.

    Example:
        >>> flexivit = Resizing(positions="bilinear_antialias", patches="bilinear_half_pixel")
        >>> flexivit.replaced(interpolation="bicubic").positions
        'bicubic'
    """

    positions: str = "bilinear"
    patches: str = "bilinear_half_pixel"
    crops: bool = False

    def __post_init__(self):
        check_types(self)
        interpolation_rule(self.positions, "positions")
        interpolation_rule(self.patches, "patches")

    def crop_to_patches(self, image_size: tuple[int, int], patch_size: tuple[int, int]) -> bool:
        """Tells whether a model for images of this size must leave pixels out, and may."""
        return self.crops and any(size % patch for size, patch in zip(image_size, patch_size))

    def replaced(
        self, interpolation: str | None = None, patch_interpolation: str | None = None
    ) -> "Resizing":
        """Returns these rules with other ones in their place.

        Args:
            interpolation: The rule for positions; None keeps it.
            patch_interpolation: The rule for patches; None keeps it.

        Raises:
            ValueError: If there is no such rule.
        """
        changes: dict[str, Any] = {}
        if interpolation is not None:
            interpolation_rule(interpolation, "interpolation")
            changes["positions"] = interpolation
        if patch_interpolation is not None:
            interpolation_rule(patch_interpolation, "patch_interpolation")
            changes["patches"] = patch_interpolation
        return dataclasses.replace(self, **changes)
