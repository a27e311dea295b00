"""Crops and resizes pictures with Pillow's resize, for training and for every model's input.

A picture with 8 bits and one or three channels is a `PIL.Image.Image` in mode RGB or L; any other
is an array `(H, W, C)`.
"""

import math

import numpy as np

from vit_keras.data import depth
from vit_keras.data.depth import Picture, as_array, as_picture, pillow
from vit_keras.support.preprocessing import Preprocessing

Window = tuple[int, int, int, int]  # top, left, height, and width in pixels
Sides = tuple[int, int]  # height and width in pixels
Part = tuple[float, float, float, float]  # top, left, height, and width as fractions of the sides

SMALL = 96 * 96  # pixels; the BiT-HyperRule crops 128 from 160 below this, 480 from 512 above
SHARES = (128 / 160, 480 / 512)
INCEPTION_AREA = (0.05, 1.0)
ASPECT = (0.75, 1.33)  # width divided by height
ATTEMPTS = 100


def sides_of(picture: Picture) -> Sides:
    """Returns the height and width of a picture in pixels."""
    return picture.shape[:2] if isinstance(picture, np.ndarray) else picture.size[::-1]


def cut(picture: Picture, window: Window) -> Picture:
    """Cuts a part out of a picture."""
    top, left, height, width = window
    if (height, width) == sides_of(picture):
        return picture
    if isinstance(picture, np.ndarray):
        return picture[top : top + height, left : left + width]
    return picture.crop((left, top, left + width, top + height))


def mirror(picture: Picture) -> Picture:
    """Mirrors a picture left to right."""
    if isinstance(picture, np.ndarray):
        return picture[:, ::-1]
    return picture.transpose(pillow().Transpose.FLIP_LEFT_RIGHT)


def squeeze(picture: Picture, size: Sides, preprocessing: Preprocessing) -> Picture:
    """Resizes a whole picture to `size` (height, width), whatever its shape.

    Pillow resizes and rounds levels if `preprocessing` rounds them. Otherwise, and for arrays, each
    channel is resized in float32. Without antialiasing, a pixel is interpolated from the 2 or 4
    nearest ones along each axis.
    """
    size = (int(size[0]), int(size[1]))
    if sides_of(picture) == size:
        return picture
    method = pillow().Resampling[preprocessing.interpolation.upper()]
    is_pillow = preprocessing.antialias or preprocessing.interpolation == "nearest"
    whole_levels = preprocessing.rounds_levels or preprocessing.interpolation == "nearest"
    if is_pillow and whole_levels and not isinstance(picture, np.ndarray):
        return picture.resize(size[::-1], method)
    pixels = as_array(picture)
    highest = 255.0 if pixels.dtype == np.uint8 else None
    if is_pillow:
        channels = pixels.astype("uint8" if whole_levels and highest else "float32")
        planes = map(pillow().fromarray, np.moveaxis(channels, -1, 0))
        resized = np.stack([plane.resize(size[::-1], method) for plane in planes], axis=-1)
    else:
        resized = pixels.astype("float32")
        for axis in (1, 0):  # Pillow's order
            resized = _sampled(resized, size[axis], axis, preprocessing.interpolation)
    if preprocessing.interpolation == "bicubic":  # overshoots
        resized = np.clip(resized, 0.0 if highest else pixels.min(), highest or pixels.max())
    return as_picture(to_uint8(resized)) if preprocessing.rounds_levels and highest else resized


def place(
    picture: Picture, scaled: Sides, window: Window, size: Sides, preprocessing: Preprocessing
) -> Picture:
    """Scales a picture to the sides `scaled`, cuts out a part, and resizes it to `size`."""
    picture = cut(squeeze(picture, scaled, preprocessing), window)
    return squeeze(picture, size, preprocessing)


def resize(images, size: Sides, preprocessing: Preprocessing) -> np.ndarray:
    """Resizes an image or a batch of images by a model's preprocessing.

    Without a `crop_fraction`, the whole image is squeezed to `size`. With one, the central part is
    cut out: that fraction of the shorter side, in the aspect ratio of `size`. Rounded levels equal
    those of `PIL.Image.resize` bit for bit.

    Args:
        images: Pixels in [0, levels], `(..., H, W, C)`; floats are rounded if levels are. Bool,
            uint8 and uint16 whose depth differs from the model's are brought to its levels.
        size: The new height and width in pixels.
        preprocessing: The interpolation, antialiasing, `crop_fraction`, and `rounding`.

    Returns:
        Float32 pixels in [0, levels], `(..., height, width, C)`.

    Raises:
        ValueError: If the channels are not last, if a value is not finite, or if the model cannot
            take the depth of the pixels.
    """
    listed = isinstance(images, (list, tuple))
    images = depth.pixels_at(images if listed else np.asarray(images), preprocessing.levels)
    depth.check_axes(images)
    if images.dtype != np.uint8 and preprocessing.rounds_levels:
        images = to_uint8(images)
    flat = images.reshape(-1, *images.shape[-3:])
    resized = np.empty((len(flat), *size, images.shape[-1]), "float32")
    scaled, window = central_window(images.shape[-3:-1], size, preprocessing)
    for image, pixels in zip(resized, flat):
        image[...] = as_array(place(as_picture(pixels), scaled, window, size, preprocessing))
    return resized.reshape(*images.shape[:-3], *size, images.shape[-1])


def seen_part(sides: Sides, size: Sides, preprocessing: Preprocessing) -> Part:
    """Returns the part of a picture that `resize` keeps: (top, left, height, width).

    Args:
        sides: The picture's height and width in pixels.
        size: The new height and width in pixels, as for `resize`.
        preprocessing: The `crop_fraction` and the `rounding`.

    Returns:
        Fractions of the picture's sides; (0, 0, 1, 1) without a `crop_fraction`.

    Example:
        >>> seen_part((224, 448), (224, 224), Preprocessing(crop_fraction=1.0))  # the middle
        (0.0, 0.25, 1.0, 0.5)
    """
    scaled, window = central_window(sides, size, preprocessing)
    return shares(window, scaled)


def shares(window: Window, sides: Sides) -> Part:
    """Returns a part of a picture as fractions of the sides."""
    (top, left, height, width), (rows, columns) = window, sides
    return top / rows, left / columns, height / rows, width / columns


def normalize(images, preprocessing: Preprocessing):
    """Maps pixels from [0, levels] to the model's input, by default to [-1, 1].

    Warns of pixels that seem to lie in another range. Integer arrays whose depth differs from the
    model's are brought to its levels, as in `resize`.

    Args:
        images: Pixels, `(..., C)`, as an array or tensor.
        preprocessing: The mean and standard deviation.

    Returns:
        An array or tensor like `images`.
    """
    channels = max(len(preprocessing.mean), len(preprocessing.std))
    images = depth.pixels_at(images, preprocessing.levels, is_resized=True)
    if np.ndim(images) > 2:
        depth.check_axes(images, channels if channels > 1 else None)
    return preprocessing.normalize(images)


def pixels_of(images: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Turns a model's inputs `(..., C)` back into pixels: uint8, or float32 for more levels.

    Example:
        >>> pixels_of(np.array([-1.0, 0.0, 1.0]), Preprocessing())
        array([  0, 128, 255], dtype=uint8)
    """
    mean, std = (np.array(x, "float32") for x in (preprocessing.mean, preprocessing.std))
    pixels = (np.asarray(images) * std + mean) * preprocessing.levels
    return to_uint8(pixels) if preprocessing.levels == 255 else pixels


def to_uint8(images) -> np.ndarray:
    """Rounds pixels to whole numbers from 0 to 255.

    Args:
        images: Pixels of any shape, mostly in [0, 255]; a resize or a mean may exceed that range.

    Returns:
        The pixels as uint8, in the same shape.

    Example:
        >>> to_uint8([-0.4, 12.6, 300.0])
        array([  0,  13, 255], dtype=uint8)
    """
    return depth.to_levels(images, 255)


def random_window(
    sides: Sides, rng: np.random.Generator, area: tuple[float, float] = INCEPTION_AREA
) -> Window:
    """Draws a part of a picture with an aspect ratio from 0.75 to 1.33.

    By default the part has 5 to 100% of the area, as in big_vision's `inception_crop`. As in
    `tf.image.sample_distorted_bounding_box`, the ratio is uniform, and so is the height within the
    range that the area allows. After 100 draws that do not fit, the whole picture is taken.

    Args:
        sides: The picture's height and width in pixels.
        rng: Draws the part.
        area: The smallest and the largest fraction of the picture's area.
    """
    rows, columns = sides
    least, most = (share * rows * columns for share in area)
    for _ in range(ATTEMPTS):
        ratio, place, y, x = rng.random(4).tolist()
        aspect = ASPECT[0] + (ASPECT[1] - ASPECT[0]) * ratio
        widest = math.ceil((columns + 0.5) / aspect) - 1
        highest = min(round(math.sqrt(most / aspect)), widest, rows)
        lowest = min(round(math.sqrt(least / aspect)), highest)
        height = lowest + int(place * (highest - lowest + 1))
        if round(height * aspect) * height < least:  # sides are rounded
            height += 1
        elif round(height * aspect) * height > most:
            height -= 1
        width = round(height * aspect)
        if least <= width * height <= most and 0 < width <= columns and 0 < height <= rows:
            return int(y * (rows - height + 1)), int(x * (columns - width + 1)), height, width
    return 0, 0, rows, columns


def bit_crop(sides: Sides, size: Sides, rng: np.random.Generator) -> tuple[Sides, Window]:
    """Draws a resize and a crop by the BiT-HyperRule (arXiv 1912.11370, Section 4.1).

    Args:
        sides: The picture's height and width in pixels.
        size: The height and width of the crop.
        rng: Draws the place of the crop.

    Returns:
        The height and width to resize to, 160/128 of `size` for a picture with fewer than 96 x 96
        pixels and 512/480 otherwise; and the part to cut out of the result.
    """
    share = SHARES[sides[0] * sides[1] >= SMALL]
    resized = round(size[0] / share), round(size[1] / share)
    top, left = rng.integers(0, np.subtract(resized, size) + 1)
    return resized, (int(top), int(left), *size)


def central_window(sides: Sides, size: Sides, scaling: Preprocessing) -> tuple[Sides, Window]:
    """Returns the sides to scale a picture to, and the part of the result that `resize` keeps."""
    if scaling.crop_fraction is None:
        return sides, (0, 0, *sides)
    old, crop = np.array(sides), np.array(size)
    if scaling.rounding == "none":
        smallest = crop / scaling.crop_fraction
        scaled = np.floor(old * (smallest / old).max() + 1e-6).astype(int)
    else:
        smallest = np.array([scaling.side_before_crop(side) for side in size])
        tight = (smallest / old).argmax()  # the shorter side, if the crop is square
        scaled = smallest[tight] * old // old[tight]
    rest = scaled - crop
    corner = rest // 2 if scaling.rounding == "transformers" else np.round(rest / 2)
    (top, left), (height, width) = corner.astype(int).tolist(), scaled.tolist()
    return (height, width), (top, left, *size)


def _sampled(pixels, length, axis, interpolation):
    """Interpolates one axis of `(H, W, C)` without antialiasing, as `tf.image.resize` does."""
    from vit_keras.support.interpolation import Rule

    taps, a = TAPS[interpolation]
    old = pixels.shape[axis]
    centers = (np.arange(length) + 0.5) * (old / length) - 0.5  # in input pixels
    places = np.floor(centers).astype(int)[:, None] + np.arange(1 - taps // 2, 1 + taps // 2)
    weights = Rule(a).kernel(np.abs(places - centers[:, None])) * ((places >= 0) & (places < old))
    weights = (weights / weights.sum(axis=1, keepdims=True)).astype("float32")
    pixels = np.moveaxis(pixels, axis, 0)
    taps_of = zip(places.clip(0, old - 1).T, weights.T)
    total = np.sum([pixels[place] * weight[:, None, None] for place, weight in taps_of], axis=0)
    return np.moveaxis(total, 0, axis)


TAPS = {"bilinear": (2, None), "bicubic": (4, -0.5)}  # pixels, and `a` of a `Rule`
