"""Masks: picture files whose pixels give classes by number, level, or color."""

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.dataset import SPLITS, Source, WholeFault, split_name
from vit_keras.data.labels import Labels
from vit_keras.data.picture_files import open_encoded, read_file, upright
from vit_keras.data.picture_paths import is_picture, pictures_in, walk_once
from vit_keras.support.checks import listed
from vit_keras.support.files import read_lines
from vit_keras.support.machine import read_ahead
from vit_keras.support.tasks import VOID

IMAGES, MASKS, NAMES = ("images", "image", "imgs", "jpegimages"), ("masks", "mask"), "classes.txt"
# Endings that masks add to the names of their pictures.
ENDS = re.compile("[-_. ](mask|masks|seg|segmentation|gt|label|labels|labelids)$", re.IGNORECASE)
MODES = ("P", "L", "1", "I;16", "I;16B", "I", "F")  # Pillow's, whose values are numbers or levels
LOSSY = ("JPEG", "MPO", "WEBP", "HEIF", "AVIF")  # formats that change levels
COLOR = re.compile(r"#[0-9a-f]{6}\b|(?<!\d)(\d{1,3}[\s,;]+){2}\d{1,3}(?!\d)", re.IGNORECASE)
SHOWN = 8  # levels or colors that a message names


def pixel_values(data: bytes, has_colors: bool = False) -> np.ndarray:
    """Returns the levels of an upright mask, or its colors as numbers 0xRRGGBB, `(H, W)` int64.

    Raises:
        ValueError: The file format loses levels, or the file has colors instead of levels.
        OSError: The file is not a complete picture.
    """
    with open_encoded(data) as picture:
        packed = picture.info.get("compression") == "jpeg"  # in a TIFF
        lossless = picture.format == "WEBP" and b"VP8L" in data[:64]
        if (picture.format in LOSSY or packed) and not lossless:
            form = picture.format
            raise ValueError(f"a mask must be lossless, as a PNG is; this {form} file is lossy")
        picture = upright(picture)
        if picture.mode in MODES and not has_colors:
            levels = np.asarray(picture).astype("int64")
            if (levels != np.asarray(picture)).any():
                raise ValueError("a mask must hold whole levels, not fractions")
            return levels
        pixels = np.asarray(picture.convert("RGB")).astype("int64")  # (H, W, 3)
    colors = pixels @ (1 << 16, 1 << 8, 1)
    if (pixels != pixels[..., :1]).any() and not has_colors:
        raise ValueError(
            "a mask must hold the number of a class for each pixel, in gray or with a palette; "
            f"it holds colors, such as {_listed(np.unique(colors).tolist(), True)}. Give the color "
            f"of each class in data.mask_colors, or beside its name in {NAMES}"
        )
    return colors if has_colors else pixels[..., 0]


def classes_in(numbers: dict[int, int], has_colors: bool, data: bytes) -> np.ndarray:
    """Reads the bytes of a mask.

    Args:
        numbers: The class number of each level, or of each color as 0xRRGGBB.
        has_colors: Whether pixels are colors.
        data: The bytes of the file.

    Returns:
        The numbers of the classes, `(H, W)` uint8; `VOID`, 255, where there is no class.

    Raises:
        ValueError: The file format loses levels, or a color or level is not a class.
        OSError: The file is not a complete picture.
    """
    known = numbers if has_colors else {VOID: VOID} | numbers
    values, places = np.unique(pixel_values(data, has_colors), return_inverse=True)
    if wrong := [value for value in values.tolist() if value not in known]:
        void = "" if has_colors else f", or {VOID} for no class"
        raise ValueError(
            f"a mask must hold only the values {_listed(numbers, has_colors)}{void}; "
            f"it holds {_listed(wrong, has_colors)}"
        )
    return np.array([known[v] for v in values.tolist()], "uint8")[places]


def _listed(values, are_colors):
    return listed((f"#{value:06x}" if are_colors else str(value) for value in values), SHOWN)


def mask_code(
    root: str, masks: Sequence[str], config: DataConfig
) -> tuple[tuple[str, ...], Callable[[bytes], np.ndarray]]:
    """Returns the names of the classes of masks, and a function from a file's bytes to its classes.

    `root`/classes.txt names the classes, one per line, and may give the color of each, as `#ff0000`
    or `255 0 0`. Without it, and without `config.mask_values` and `config.mask_colors`, the masks
    must hold the numbers of the classes without gaps.

    Raises:
        ValueError: If levels or colors do not fit the names, or have gaps; the message names them.
    """
    names, colors = _named_classes(os.path.join(root, NAMES))
    colors = tuple(map(_number_of, config.mask_colors)) or colors
    values = tuple(map(int, config.mask_values)) or colors
    has_colors = bool(values) and not config.mask_values
    if not (values or names):
        present = np.flatnonzero(levels_in(masks).any(axis=0))
        levels = present[present != VOID].tolist()
        if not len(present):  # reading the first one tells why none can be read
            _read(masks[0], pixel_values)
        if len(levels) < 2 or levels[-1] != len(levels) - 1:
            raise ValueError(
                "The masks must hold the numbers of the classes, from 0 up without gaps, or "
                f"{VOID} for no class. Received: {root!r} with the levels "
                f"{_listed(present.tolist(), False)}. Name all classes in {NAMES}; if each level "
                f"is a class, give --data.mask_values {','.join(map(str, present[:SHOWN]))}"
            )
        values = tuple(levels)
    values = values or tuple(range(len(names)))
    names = names or tuple(_listed([value], has_colors) for value in values)
    if not len({*values}) == len(values) == len(names) == len({*names}) <= VOID:
        raise ValueError(
            f"Each of at most {VOID} classes needs its own name, and its own level or color. "
            f"Received: {len(values)} levels or colors, {_listed(values, has_colors)}, for "
            f"{len(names)} classes, such as {list(names)[:SHOWN]}"
        )
    numbers = {value: k for k, value in enumerate(values)}
    return names, functools.partial(classes_in, numbers, has_colors)


def _number_of(color) -> int:
    """Converts "#rrggbb", "rrggbb" or "r g b" to 0xRRGGBB."""
    digits = color.strip().removeprefix("#")
    if re.fullmatch("[0-9a-fA-F]{6}", digits):
        return int(digits, 16)
    levels = [int(part) for part in re.split(r"[\s,;]+", digits) if part.isdigit()]
    if len(levels) != 3 or max(levels) > 255:
        raise ValueError(f"A color must look like #ff0000 or 255 0 0. Received: {color!r}")
    return levels[0] << 16 | levels[1] << 8 | levels[2]


def _named_classes(file) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Reads the names and, if given, the colors of the classes in classes.txt, if it exists."""
    lines = read_lines(file, "Repair it")
    codes = [match[0] for line in lines if (match := COLOR.search(line))]
    if len(codes) < len(lines):
        return tuple(lines), ()
    names = [COLOR.sub("", row).strip(" \t,;:=") or of for row, of in zip(lines, codes)]
    return tuple(names), tuple(map(_number_of, codes))


def levels_in(masks: Sequence[str], read: Callable = pixel_values) -> np.ndarray:
    """Finds the levels in N mask files or, with the function of `mask_code`, the classes.

    Returns:
        Whether each mask has each level or class, `(N, 256)` float32; 0 if it is unreadable.
    """

    def look(path):
        present = np.zeros(256, "float32")
        with contextlib.suppress(OSError, ValueError, SyntaxError):  # a run reports those
            seen = np.unique(read(read_file(path)))
            present[seen[seen < 256]] = 1
        return present

    return np.stack([*read_ahead(look, masks)])


def _read(path, read):
    """Returns what `read` makes of the bytes of a mask; its errors name the file."""
    try:
        return read(read_file(path))
    except (OSError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise WholeFault(f"{path!r} cannot be read as a mask ({reason})") from error


def with_masks(source: Source, root: str, masks: Sequence[str], config: DataConfig) -> Source:
    """Adds each picture's mask, a path relative to the root, and the meaning of its pixels."""
    places = [os.path.join(root, mask) for mask in masks]
    first = next(iter(source.splits.values()))  # train, unless all pictures are held out
    names, read = mask_code(root, [places[i] for i in first], config)
    pictures: Any = source.files

    def label_of(index, sides):
        mask = _read(places[index], read)
        if mask.shape != sides:
            raise WholeFault(
                "A picture and its mask must have the same height and width. Received: "
                f"{source.name_of(index)!r} with {sides} and {places[index]!r} with {mask.shape}"
            )
        return mask

    return dataclasses.replace(
        source,
        labels=Labels("masks", names, lambda: levels_in(places, read)[:, : len(names)]),
        label_of=label_of,
        files=lambda indices: [*pictures(indices), *((masks[i], places[i]) for i in indices)],
    )


def holds_masks(path: str) -> bool:
    """Whether a folder, or its folder of a split, contains pictures and their masks.

    The files lie in the folders images and masks, or side by side, as `a.jpg` and `a_mask.png`.

    Example:
        >>> holds_masks("photos")  # which has a folder for each class
        False
    """
    names = os.listdir(path) if os.path.isdir(path) else ()
    splits = (os.path.join(path, name) for name in names if split_name(name) in SPLITS)
    roots = filter(os.path.isdir, (path, *splits))
    return any(all(_folders(root)) or _has_masks_beside(root) for root in roots)


def _folders(root) -> tuple[str | None, str | None]:
    """Returns the folders of the pictures and of the masks in `root`."""
    entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    known = {entry.name.lower(): entry.path for entry in entries if os.path.isdir(entry)}
    images, masks = (next((known[n] for n in of if n in known), None) for of in (IMAGES, MASKS))
    return images, masks


def _has_masks_beside(root):
    """Whether pictures have masks beside them, in the first folder below `root` with pictures."""
    for _, names in walk_once(root):
        if stems := {os.path.splitext(name)[0] for name in names if is_picture(name)}:
            return 2.1 * len(_masks_among(stems)) >= len(stems)
    return False


def _masks_among(stems) -> dict[str, str]:
    """Returns the masks among names of files, each with the name of its picture."""
    pictures = {stem: ENDS.sub("", stem) for stem in stems}
    return {stem: of for stem, of in pictures.items() if of != stem and of in pictures}


def find_masks(root: str) -> list[tuple[str, str]]:
    """Pairs each picture in a folder with its mask by their names.

    Raises:
        ValueError: There is not exactly one mask per picture.
    """
    folders = _folders(root)
    if all(folders):
        images, masks = map(_by_stem, folders)
        named = {stem: ENDS.sub("", stem) for stem in masks.keys() - images.keys()}
    else:
        images = _by_stem(root)
        named = _masks_among(images)
        masks = {stem: images.pop(stem) for stem in named}
    masks = {named.get(stem, stem): path for stem, path in masks.items()}
    alone = sorted(images.keys() ^ masks.keys())
    if alone or not images:
        raise ValueError(
            "Every picture in images/ needs a mask of the same name in masks/, or a mask beside "
            f"it, such as a_mask.png for a.jpg; every mask needs a picture. Received: {root!r} "
            f"with {len(images)} pictures and {len(alone)} files without a counterpart: {alone[:5]}"
        )
    return [(images[stem], masks[stem]) for stem in images]


def _by_stem(folder) -> dict[str, str]:
    """Returns the pictures in a folder by their relative paths without suffixes."""
    files: dict[str, str] = {}
    for path in pictures_in(folder):
        stem = os.path.splitext(os.path.relpath(path, folder))[0]
        if stem in files:
            raise ValueError(
                f"Names must differ in more than the suffix. Received: {files[stem]!r} and {path!r}"
            )
        files[stem] = path
    return files
