"""Warnings of files whose readers prepare pictures in another way than the model that was saved."""

import warnings

import numpy as np

from vit_keras.models import Preprocessing
from vit_keras.weights.formats.base import Format

COLORS, METHODS = ("mean", "std"), ("interpolation", "antialias", "levels", "bands")
CALLER = 4  # the caller of `save`


def warn_of_pictures(
    row: Format,
    ours: Preprocessing,
    theirs: Preprocessing,
    shape: tuple[int, int, int],
    is_folder: bool,
) -> None:
    """Warns where the code of a format will give other probabilities of the same picture.

    A lone file of a project that describes models in folders says nothing of pictures.

    Args:
        row: The format.
        ours: The preprocessing of the model.
        theirs: What the code of the format reads from the folder, or always does.
        shape: (H, W, C) of the model's images.
        is_folder: Whether the weights are written to a folder.
    """
    if row.config_files is not None and not is_folder:
        return
    names = differences(ours, theirs, shape)
    if names:
        there, here = (_told(names, pixels) for pixels in (theirs, ours))
        warnings.warn(
            f"{row.name} prepares pictures with {there} and this model with {here}, which "
            "cannot be written: probabilities of the same picture will differ there",
            stacklevel=CALLER,
        )
    if not {"rounding", "crop_fraction"} & {*names} and (reason := _other_cut(ours, theirs, shape)):
        warnings.warn(
            f"{row.name} {reason}: it cuts some pictures elsewhere than this model, and their "
            "probabilities will differ there",
            stacklevel=CALLER,
        )
    if is_folder and shape[-1] == 1:
        warnings.warn(
            f"{row.name} does not turn pictures gray as this model's preprocessing does: give its "
            "code gray ones",
            stacklevel=CALLER,
        )


def differences(ours: Preprocessing, theirs: Preprocessing, shape) -> list[str]:
    """The names of the fields by which pictures become other images `(H, W, C)`."""
    height, width, channels = shape
    ours, theirs = (pixels.for_channels(channels) for pixels in (ours, theirs))
    values = lambda pixels, name: np.broadcast_to(getattr(pixels, name), channels)
    names = [n for n in COLORS if not np.allclose(values(ours, n), values(theirs, n), atol=1e-6)]
    names += [name for name in METHODS if getattr(ours, name) != getattr(theirs, name)]
    if ours.rounds_levels and not theirs.rounds_levels:  # less than 1e-3 the other way round
        names.append("rounding")
    side = min(height or 224, width or 224)  # ResNets take any size
    if ours.side_before_crop(side) != theirs.side_before_crop(side):
        names.append("crop_fraction")
    return names


def _other_cut(ours, theirs, shape):
    """Why the code of a format cuts some pictures elsewhere; "" where it does not."""
    if ours.crop_fraction is None:
        return ""
    height, width, _ = shape
    if theirs.rounding != "none" and height != width:
        return f"takes other sizes before a crop of {height}x{width} pixels"
    before = (height or 224) / ours.crop_fraction
    if theirs.rounding != "none" == ours.rounding and abs(before - round(before)) > 1e-6:
        return f"rounds the {before:.1f} pixels of the shorter side before the crop"
    down = [pixels.rounding == "transformers" for pixels in (theirs, ours)]
    if down[0] == down[1]:
        return ""
    return f"rounds the corner of a crop {'down' if down[0] else 'to the even side'}"


def _told(names, pixels):
    return ", ".join(f"{name}={getattr(pixels, name)!r}" for name in names)
