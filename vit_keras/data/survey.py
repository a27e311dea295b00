"""Looks at every picture of a data set: whether it can be read, its size, and its hashes."""

import dataclasses
import hashlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from vit_keras import extras
from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset, base_split
from vit_keras.data.held_out import train_and_test
from vit_keras.data.label_kinds import LABEL_KINDS
from vit_keras.data.pillow_images import open_encoded, pillow_image
from vit_keras.data.read_ahead import read_ahead
from vit_keras.data.splits import Split
from vit_keras.data.tf_images import FAULTS, decode, fault_message

AHEAD = 256  # pictures that are looked at in advance
# Pixels: pictures are reduced to one or two times this side before their hashes are computed.
PHASHED, COLORHASHED = 128, 64
KINDS = {  # of pictures, by Pillow's modes; all others have palettes
    **dict.fromkeys(("1", "L"), "grayscale"),
    **dict.fromkeys(("I;16", "I;16B", "I;16L"), "16 bits of gray"),
    **dict.fromkeys(("RGB", "YCbCr"), "RGB"),
    **dict.fromkeys(("RGBA", "LA", "PA", "RGBa", "La"), "with transparency"),
    "CMYK": "CMYK",
}


@dataclasses.dataclass(frozen=True)
class Picture:
    """What is known about a picture.

    Attributes:
        name: Its path, or its place in the data set.
        split: The split that it belongs to.
        class_name: Its class.
        error: Why training cannot read it, or None.
        width: In pixels, upright.
        height: In pixels, upright.
        kind: Such as "RGB", "grayscale", or "with transparency".
        digest: A SHA-256 of its bytes.
        phash: The 64 bits of `imagehash.phash`.
        colorhash: The 42 bits of `imagehash.colorhash`.
    """

    name: str
    split: str
    class_name: str
    error: str | None = None
    width: int = 0
    height: int = 0
    kind: str = ""
    digest: str = ""
    phash: int = 0
    colorhash: int = 0


def splits_of_run(dataset: Dataset, config: DataConfig) -> dict[str, Split]:
    """Returns the splits that a run uses, by name, and the others of most kinds of data sets.

    Raises:
        ValueError: If a split of the run does not exist.
    """
    names = [
        base_split(name, dataset.splits) or name for name in (config.train_split, config.test_split)
    ]
    if config.dev_percent:
        names[1] = f"{config.dev_percent:g} % of {names[0]}"
    chosen = dict(zip(names, train_and_test(dataset, config)))
    if not dataset.name.startswith(("folder:", "table:", "shards:", "hf:")):
        return chosen
    used = {part.split("[")[0] for name in names for part in name.split("+")}
    return chosen | {name: split for name, split in dataset.splits.items() if name not in used}


def survey_pictures(dataset: Dataset, splits: dict[str, Split]) -> Iterator[Picture]:
    """Reads every picture of some splits as training does, on all cores.

    Args:
        dataset: The data set.
        splits: The splits to look at, by name.

    Returns:
        An iterator of one `Picture` for each picture, in the order of the splits. It never raises
        for a picture that cannot be read, but tells its `error`.

    Raises:
        ImportError: If a package of the extra `data` is not installed.
    """
    for name in ("imagehash", "PIL"):
        extras.require(name, extra="data", purpose="Comparing pictures")
    jobs = ((name, split, i) for name, split in splits.items() for i in range(len(split)))
    text = LABEL_KINDS[dataset.kind].text
    return read_ahead(
        lambda job: _look(*job, lambda label: text(label, dataset.class_names)), jobs, AHEAD
    )


def _look(split_name, split, index, text):
    name = split.name(index) if split.name else f"{split_name}[{index}]"
    try:
        pixels, data, label = _read(split, index)
        kind = _kind(data) if isinstance(data, bytes) else "in memory"
    except FAULTS as error:
        reason = fault_message(repr(name), error)
        return Picture(name, split_name, text(split.labels[index]), error=reason)
    height, width = pixels.shape[:2]
    digest = hashlib.sha256(data).hexdigest()
    known = (name, split_name, text(label), None, width, height, kind, digest)
    return Picture(*known, *hashes(pixels))


def _read(split, index):
    """Returns the pixels `(H, W, 3)`, the bytes that they come from, and the label."""
    encoded = split.encoded(index)
    if encoded is None:
        image = split.read(tf.constant(index)).numpy()  # (H, W, 1 or 3)
        return np.repeat(image, 3 // image.shape[-1], axis=-1), image, split.labels[index]
    data, label = encoded
    if split.has_masks:
        label = split.example(tf.constant(index), replace=False)[1].numpy()
    return decode(tf.constant(data), 3).numpy(), data, label


def _kind(data):
    if data[:4] == b"\x89PNG" and data[24] == 16:  # which Pillow's modes do not tell of colors
        return "16 bits of gray" if data[25] in (0, 4) else "16 bits of RGB"
    with open_encoded(data) as picture:
        if "transparency" in picture.info:
            return KINDS["RGBA"]
        return KINDS.get(picture.mode, "with a palette")


def hashes(pixels: np.ndarray) -> tuple[int, int]:
    """Computes `imagehash.phash` and `imagehash.colorhash` of pixels `(H, W, 3)` as integers.

    The first one tells shapes and the second one colors. The picture is reduced by a whole factor
    first, which changes few bits and takes less time.
    """
    imagehash = extras.require("imagehash", extra="data", purpose="Comparing pictures")
    picture = pillow_image().fromarray(pixels)
    picture = picture.reduce(max(1, min(picture.size) // PHASHED))
    colors = picture.reduce(max(1, min(picture.size) // COLORHASHED))
    return _bits(imagehash.phash(picture)), _bits(imagehash.colorhash(colors))


def _bits(image_hash):
    bits = np.packbits(np.asarray(image_hash.hash, bool).ravel())
    return int.from_bytes(bits.tobytes(), "big")
