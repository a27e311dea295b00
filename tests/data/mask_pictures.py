"""A folder of pictures and masks, where a picture shows the numbers of its mask as grays."""

import numpy as np
from PIL import Image

STEP = 80  # of gray from one class to the next
CLASSES = 3


def make_mask(rng):
    """A mask `(H, W)` of a rectangle of class 1 and one of class 2 on class 0."""
    mask = np.zeros((40, 32), "uint8")
    for number in (1, 2):
        top, left = rng.integers(2, 24), rng.integers(2, 18)
        mask[top : top + 13, left : left + 11] = number
    return mask


def write_pair(root, name, mask):
    """Writes root/images/NAME.png, three channels of gray, and root/masks/NAME.png."""
    for folder in ("images", "masks"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    gray = np.where(mask == 255, 7, mask * STEP).astype("uint8")
    picture = Image.fromarray(np.repeat(gray[..., None], 3, axis=-1))
    picture.save(root / "images" / f"{name}.png")
    Image.fromarray(mask).save(root / "masks" / f"{name}.png")


def write_split(root, count, seed):
    """Writes `count` pairs, and returns the masks by name."""
    rng = np.random.default_rng(seed)
    masks = {f"p{number:02d}": make_mask(rng) for number in range(count)}
    for name, mask in masks.items():
        write_pair(root, name, mask)
    return masks


def write_folder(root, train=12, test=4):
    write_split(root / "train", train, 1)
    write_split(root / "test", test, 2)
    (root / "classes.txt").write_text("ground\nhouse\ntree\n")
    return root
