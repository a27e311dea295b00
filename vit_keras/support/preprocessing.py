"""Descriptions that models carry: how pixels become their input, and how weights are resized."""

import dataclasses
import warnings
from typing import Any, Literal

import numpy as np

from vit_keras.support import interpolation
from vit_keras.support.checks import Rule, as_tuple, check_choice, check_rules, check_types, short


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How a picture's pixels become a model's input.

    The defaults are for new models: inputs in [-1, 1], as in the published ViT code, and Pillow's
    resizing, which other projects also use. Published weights have their own rules.

    Attributes:
        mean: Subtracted from pixels divided by `levels`: one value, or one for each channel.
        std: Divides the difference: one value, or one for each channel.
        interpolation: The resizing method, "bilinear" or "bicubic".
        antialias: Whether downscaling averages the pixels that it would otherwise skip.
        crop_fraction: The side of a central crop as a fraction of the picture's shorter side. None
            resizes the whole picture to the model's size, whatever its shape.
        rounding: Which numbers are rounded, besides sizes. "torchvision" resizes with Pillow, as
            torchvision's transforms, timm and OpenCLIP do: levels are rounded after each axis, the
            shorter side before a crop is rounded down, and the longer side is computed from it.
            "transformers" also rounds the corner of a crop down; the others round half a pixel to
            the even one. "none" does not round levels, and computes the longer side from the exact
            shorter side.
        levels: The level of white: 255 for 8 bits, 4095 or 65535 for 12 or 16 bits, and 1 for
            floats.
        bands: The file's channels that the model takes, in the model's order, counted from 1; empty
            for all of them.

    Raises:
        ValueError: If a field has an unsupported value.

    Example:
        >>> Preprocessing().normalize(np.array([0.0, 127.5, 255.0]))
        array([-1.,  0.,  1.])
    """

    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    interpolation: Literal["bilinear", "bicubic", "nearest"] = "bilinear"  # the last: for masks
    antialias: bool = True
    crop_fraction: float | None = None
    rounding: Literal["none", "torchvision", "transformers"] = "torchvision"
    levels: float = 255.0
    bands: tuple[int, ...] = ()

    def __post_init__(self):
        check_types(self)
        check_rules(self, None, RULES)

    @property
    def rounds_levels(self) -> bool:
        """Whether resizing rounds pixels to whole levels from 0 to 255, as Pillow does."""
        return self.rounding != "none" and self.interpolation != "nearest" and self.levels == 255

    @property
    def input_type(self) -> str:
        """The type of the pixels that an exported model takes: uint8 for 8 bits, else float32."""
        return "uint8" if self.levels == 255 else "float32"

    def normalize(self, pixels):
        """Converts float pixels `(..., C)` in [0, levels] to the model's input, `(..., C)`."""
        if self.levels <= 255 and str(getattr(pixels, "dtype", "")).endswith("uint16"):
            raise ValueError(
                f"Pixels must have levels up to {self.levels:g}. Received: uint16. Scale them "
                "with data.normalize(pixels, preprocessing)"
            )
        mean, std = (self.levels * np.asarray(v, "float32") for v in (self.mean, self.std))
        return (pixels - mean) / std

    def unscaled(self) -> "Preprocessing":
        """Returns this preprocessing without the normalization: pixels stay in [0, levels]."""
        return dataclasses.replace(self, mean=(0.0,), std=(1 / self.levels,))

    def for_channels(self, channels: int) -> "Preprocessing":
        """Returns this preprocessing with one mean and std, or one for each of `channels`.

        Other numbers of values are adapted like patch kernels for other channels: one channel takes
        the average of all values, and more channels repeat the values in turn.

        Example:
            >>> Preprocessing(mean=(0.25, 0.5, 0.75)).for_channels(1).mean
            (0.5,)
        """

        def fit(values):
            if 1 in (channels, len(values)):
                return (sum(values) / len(values),)
            return tuple(np.resize(values, channels).tolist())

        mean, std = fit(self.mean), fit(self.std)
        is_same = (mean, std) == (self.mean, self.std)
        return self if is_same else dataclasses.replace(self, mean=mean, std=std)

    def side_before_crop(self, side: int) -> int | None:
        """Returns `side` before the crop in whole pixels, rounded down; None without a crop."""
        return None if self.crop_fraction is None else int(side / self.crop_fraction + 1e-6)

    def rescaling(self) -> tuple[list[float], list[float]]:
        """Returns the normalization as the `scale` and `offset` of `keras.layers.Rescaling`."""
        scale = [1 / (self.levels * std) for std in self.std]
        return scale, [-mean / std for mean, std in zip(self.mean, self.std)]


def _are_colors(mean, std) -> bool:
    return bool(mean and std) and 0 not in std and max(map(abs, (*mean, *std))) < 1e6


RULES: tuple[Rule, ...] = (
    (("mean", "std"), _are_colors, "give numbers below 1e6, and no 0 in the second one"),
    ("levels", lambda level: level > 0, "above 0"),
    ("bands", lambda bands: min(bands, default=1) >= 1, "counted from 1"),
    ("crop_fraction", lambda share: 0 < share <= 1, "above 0 and at most 1, or None"),
)


def as_numbers(values: Any, name: str = "Pixels", step: int = 1) -> Any:
    """Returns lists and arrays as an array of finite numbers in native byte order.

    Args:
        values: The user's values. Tensors and other objects are returned unchanged.
        name: The name of the numbers in messages.
        step: Looks for NaN and infinity in every `step`-th element.

    Raises:
        ValueError: If elements have different sizes, or if a value is not a finite number.
    """
    if not isinstance(values, (np.ndarray, list, tuple)):
        return values
    try:
        array = np.asarray(values)
    except ValueError:  # elements of different sizes
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be real numbers in one array. Received: {short(values)}. Resize pictures "
            "one by one to one size, then join them: np.stack(pictures)"
        )
    sample = array[::step] if array.ndim else array
    if array.size and not np.isfinite([sample.min(), sample.max()]).all():
        raise ValueError(f"{name} must be finite. Received: NaN or infinity. Replace them")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


SAMPLED = 8  # pictures of an array, whose values are checked


def as_inputs(images: Any, preprocessing: Preprocessing, warns: bool = True) -> Any:
    """Returns lists and arrays of prepared pictures as an array; warns about unprepared pictures.

    Args:
        images: The input of a model. Tensors are returned unchanged, and so are lists of
            anything but pictures, such as a list of a model's inputs.
        preprocessing: The model's preprocessing.
        warns: Whether to also warn about values in 0..1, which bright prepared pictures may have.

    Raises:
        ValueError: As in `as_numbers`.
    """
    first: Any = next(iter(images), []) if isinstance(images, (list, tuple)) else None
    if isinstance(first, (list, tuple)) or getattr(first, "ndim", 0) == 3:
        images = as_numbers(images)
    elif isinstance(images, np.ndarray):  # reading them all can take longer than the model
        images = as_numbers(images, step=1 + len(images) // SAMPLED)
    if not isinstance(images, np.ndarray) or not images.size:
        return images
    black, white = preprocessing.normalize(np.array([[0.0], [preprocessing.levels]], "float32"))
    sample = images[:: 1 + len(images) // SAMPLED]
    black, white, low, high = map(float, (black.min(), white.max(), sample.min(), sample.max()))
    is_small = warns and 0 <= low < high <= 1 and (black < -0.1 or white > 8)
    if is_small or max(high, -low) > 8 * max(white, -black):
        warnings.warn(
            f"This model takes pictures in which black is {black:.3g} and white is {white:.3g}. "
            f"Received: values from {low:.3g} to {high:.3g}. Prepare them with "
            "data.normalize(pixels, model.preprocessing), or set model.preprocessing to match them",
            stacklevel=3,
        )
    return images


# The resizing of the original code, `vit_jax`, for its files and for files without their own rule.
PUBLISHED_PREPROCESSING = Preprocessing(antialias=False, rounding="none")


def with_tuples(fields) -> dict[str, Any]:
    """The fields of a frozen dataclass, with JSON's lists turned back into tuples."""
    return {name: as_tuple(value) for name, value in fields.items()}


@dataclasses.dataclass(frozen=True)
class Resizing:
    """The rules for position embeddings on other grids and for patch kernels of other sizes.

    The defaults are the rules of the published ViT code, and of FlexiViT for kernels.

    Attributes:
        positions: A key of `INTERPOLATIONS`, or "bilinear_geometric" for biases.
        patches: The name of the rule for resizing patches; see `resample_patch_kernel`.
        crops: Whether to accept images of any size and ignore the pixels at the right and bottom
            that do not fill a patch, like a convolution without padding.
        biases: The name of the rule for BEiT's biases; None uses the rule for positions.

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
    biases: str | None = None

    def __post_init__(self):
        check_types(self)
        for name, rule in vars(self).items():
            if isinstance(rule, str):
                check_choice(rule, interpolation.RULES, name)

    def crop_to_patches(self, image_size: tuple[int, int], patch_size: tuple[int, int]) -> bool:
        """Returns whether images of this size need cropping, and the rule allows it."""
        return self.crops and any(size % patch for size, patch in zip(image_size, patch_size))

    def replaced(
        self, interpolation: str | None = None, patch_interpolation: str | None = None
    ) -> "Resizing":
        """Returns a copy with other rules.

        Args:
            interpolation: The rule for positions; None keeps it.
            patch_interpolation: The rule for patches; None keeps it.

        Raises:
            ValueError: If there is no such rule.
        """
        changes: dict[str, Any] = {}
        if interpolation is not None:
            changes |= {"positions": interpolation, "biases": None}
        if patch_interpolation is not None:
            changes["patches"] = patch_interpolation
        return dataclasses.replace(self, **changes)
