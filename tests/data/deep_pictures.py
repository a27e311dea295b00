"""Pictures of more than 8 bits and of several channels, as files."""

import io

import imagecodecs
import numpy as np
import tifffile
from PIL import Image


def stored(picture, form, **options):
    """Returns the file of a `PIL.Image.Image` in one of Pillow's formats."""
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def tiff(pixels, **options):
    file = io.BytesIO()
    tifffile.imwrite(file, pixels, **options)
    return file.getvalue()


def npy(pixels):
    file = io.BytesIO()
    np.save(file, pixels, allow_pickle=True)
    return file.getvalue()


def png(pixels):
    """A PNG of 16 bits; Pillow writes gray, the other library colors."""
    if pixels.ndim == 3:
        return imagecodecs.png_encode(pixels)
    return stored(Image.fromarray(pixels), "PNG")


def texture(rng, across: bool, channels: int = 1, side: int = 16) -> np.ndarray:
    """Stripes across or down that differ in the low 8 of 12 bits; the high 4 say nothing."""
    places = np.arange(side) // 2 % 2
    stripes = np.broadcast_to(places if across else places[:, None], (side, side))
    high = 256 * rng.integers(0, 15 if channels == 1 else 3, channels)
    return (high + 20 + 210 * stripes[..., None]).astype("uint16")


def write_textures(folder, rng, count: int, write, channels: int = 1):
    """Writes `count` pictures of each texture and split, by `write(path, pixels)`."""
    for split in ("train", "test"):
        for name, across in (("across", True), ("down", False)):
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                write(folder / split / name / f"{i}", texture(rng, across, channels))
