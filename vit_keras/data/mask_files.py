"""Reads masks: picture files whose pixels are the numbers of classes."""

import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from vit_keras.data.image_files import path_constant
from vit_keras.data.origin import Origin, UnreadableImages
from vit_keras.data.pillow_images import open_encoded
from vit_keras.data.read_ahead import read_ahead
from vit_keras.data.splits import Split
from vit_keras.data.tf_images import FAULTS, Window, cut, decode, fault_message, in_python
from vit_keras.tasks import VOID

MODES = ("P", "L", "1", "I;16", "I")  # of Pillow, whose values are the numbers of classes
AHEAD = 256  # masks that are read in advance


def read_encoded_mask(data: bytes, num_classes: int | None = None) -> np.ndarray:
    """Reads the bytes of a mask: a PNG of class numbers, also with a palette.

    Args:
        data: The bytes of the file.
        num_classes: K, to check the numbers; None for up to 255.

    Returns:
        The numbers of the classes, `(H, W)` uint8; `VOID`, 255, where there is none.

    Raises:
        ValueError: The file holds colors, or a number that is no class.
        OSError: The file is no whole picture.
    """
    with open_encoded(data) as picture:
        if picture.mode not in MODES:
            raise ValueError(
                "a mask must hold the number of a class for each pixel, in gray or with a palette, "
                f"not colors; its mode is {picture.mode}"
            )
        numbers = np.asarray(picture)
    numbers = numbers.astype("int64")
    most = VOID - 1 if num_classes is None else num_classes - 1
    if ((numbers > most) & (numbers != VOID) | (numbers < 0)).any():
        wrong = sorted({*np.unique(numbers).tolist()} - {*range(most + 1), VOID})
        raise ValueError(
            f"the numbers of a mask must be classes from 0 to {most}, or {VOID} for no class; it "
            f"holds {wrong[:5]}"
        )
    return numbers.astype("uint8")


def classes_in(masks: Sequence[str], num_classes: int | None = None) -> np.ndarray:
    """Finds the classes in the masks of N files.

    Returns:
        Whether each class is in each mask, `(N, 256)` float32; nothing where a file is unreadable.
    """

    def look(path):
        present = np.zeros(256, "float32")
        try:
            with open(path, "rb") as file:
                present[np.unique(read_encoded_mask(file.read(), num_classes))] = 1
        except (OSError, ValueError, SyntaxError):
            pass  # whoever reads the picture says so
        return present

    return np.stack([*read_ahead(look, masks, AHEAD)])


def from_mask_files(
    images: Sequence[str],
    masks: Sequence[str],
    num_classes: int,
    channels: int,
    unreadable: UnreadableImages,
) -> Split:
    """Makes a split of pictures whose labels are masks `(H, W, 1)` uint8.

    Args:
        images: The picture files.
        masks: The mask of each picture.
        num_classes: K.
        channels: 1 for grayscale or 3 for RGB.
        unreadable: Collects the pictures that cannot be read, or whose masks cannot.
    """
    image_tensor, mask_tensor = path_constant(images), path_constant(masks)

    def encoded(index):
        paths = (tf.gather(tensor, index) for tensor in (image_tensor, mask_tensor))
        data, mask = map(tf.io.read_file, paths)
        return data, mask

    def decode_mask(data: tf.Tensor, window: Window | None = None) -> tf.Tensor:
        read = lambda data: read_encoded_mask(data, num_classes)[..., None]
        return cut(in_python(read, data, tf.uint8, (None, None, 1)), window)

    def reason(index):
        try:
            image = decode(tf.io.read_file(os.fsencode(images[index])), channels)
        except FAULTS as error:
            return fault_message(repr(images[index]), error)
        try:
            mask = decode_mask(tf.io.read_file(os.fsencode(masks[index])))
        except FAULTS as error:
            return _mask_fault(masks[index], error)
        return _size_fault(images[index], masks[index], image, mask)

    origin = Origin(
        files=lambda: [(path, path) for pair in zip(images, masks) for path in pair],
        name=lambda index: images[index],
        reason=reason,
        channels=channels,
        unreadable=unreadable,
    )
    present = lambda: classes_in(masks, num_classes)[:, :num_classes]
    return Split(present, encoded=encoded, origin=origin, size=len(images), mask=decode_mask)


def _mask_fault(path, error):
    text = fault_message(repr(path), error)
    reason = text[text.index("(") + 1 : text.rindex(")")]
    return f"{path!r} cannot be read as a mask ({reason})"


def _size_fault(image_path, mask_path, image, mask):
    sizes = [f"{x.shape[1]}x{x.shape[0]}" for x in (image, mask)]
    return (
        f"A picture and its mask must have the same size. Received: {image_path!r} with "
        f"{sizes[0]} pixels and {mask_path!r} with {sizes[1]}"
    )
