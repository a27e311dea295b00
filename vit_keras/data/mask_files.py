"""Reads masks: picture files whose pixels are the numbers of classes."""

from collections.abc import Sequence

import numpy as np

from vit_keras.data.image_files import read_file
from vit_keras.data.origin import Origin, UnreadableImages, WholeFault
from vit_keras.data.pillow_images import open_encoded
from vit_keras.data.read_ahead import read_ahead
from vit_keras.data.splits import Split
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
    """Makes a split of pictures whose labels are masks `(H, W)` uint8.

    Args:
        images: The picture files.
        masks: The mask of each picture.
        num_classes: K.
        channels: 1 for grayscale or 3 for RGB.
        unreadable: Collects the pictures that cannot be read, or whose masks cannot.
    """

    def decode_mask(index: int, data: bytes, sides: tuple[int, int]) -> np.ndarray:
        try:
            mask = read_encoded_mask(data, num_classes)
        except (OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise WholeFault(f"{masks[index]!r} cannot be read as a mask ({reason})") from error
        if mask.shape != sides:
            (height, width), (rows, columns) = sides, mask.shape
            raise WholeFault(
                "A picture and its mask must have the same size. Received: "
                f"{images[index]!r} with {width}x{height} pixels and {masks[index]!r} with "
                f"{columns}x{rows}"
            )
        return mask

    origin = Origin(
        files=lambda: [(path, path) for pair in zip(images, masks) for path in pair],
        name=images.__getitem__,
        channels=channels,
        unreadable=unreadable,
    )
    return Split(
        lambda: classes_in(masks, num_classes)[:, :num_classes],
        encoded=lambda i: (read_file(images[i]), read_file(masks[i])),
        origin=origin,
        size=len(images),
        mask=decode_mask,
    )
