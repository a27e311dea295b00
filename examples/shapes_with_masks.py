"""Makes pictures and their masks to learn segmentation from: shapes drawn on crops of photographs.

    python examples/shapes_with_masks.py shapes
    python examples/shapes_with_masks.py shapes --classes heart arrow star --count 2000

The first command makes shapes/train/images/00000.jpg, shapes/train/masks/00000.png and so on, and
shapes/classes.txt. Each picture has one or two circles and crosses in bright colors, partly
transparent, tilted by up to 25 degrees, at any place; later ones cover earlier ones. The
pixels of a mask are 0 for the background and the number of the class for a shape. Training pictures
show the left halves of two photographs, and test pictures their right halves. A picture follows
from the seed, its split and its number alone.
"""

import argparse
import colorsys
import pathlib
import sys

import numpy as np
from PIL import Image

try:
    from examples.shapes_on_photographs import OUTLINES, SIZE, SPLITS, draw_mask, halves, new_folder
except ImportError:  # as a script
    from shapes_on_photographs import OUTLINES, SIZE, SPLITS, draw_mask, halves, new_folder

CONTRAST = 0.5  # of the photographs, which are darker than the shapes
PALETTE = [(0, 0, 0), (230, 25, 75), (60, 180, 75), (0, 130, 200), (245, 130, 48), (145, 30, 180)]


def make_pair(photographs, classes, rng):
    """Draws shapes on a random crop of one of the photographs.

    Returns:
        The picture, and its mask in mode "P".
    """
    photograph = photographs[rng.integers(len(photographs))]
    width = rng.uniform(80, 240)
    height = width * SIZE[1] / SIZE[0]
    left, top = rng.uniform(0, photograph.width - width), rng.uniform(0, photograph.height - height)
    box = (left, top, left + width, top + height)
    picture = photograph.resize(SIZE, Image.Resampling.BICUBIC, box)
    picture = picture.point(lambda value: round(CONTRAST * value))
    mask = np.zeros(SIZE[::-1], "uint8")
    for _ in range(rng.integers(1, 3)):
        number = rng.integers(len(classes))
        radius, degrees = rng.uniform(26, 50), rng.uniform(-25, 25)
        center = [rng.uniform(radius, side - radius) for side in SIZE]
        covered = draw_mask(OUTLINES[classes[number]], center, radius, degrees)
        hue, saturation, value = rng.random(), rng.uniform(0.3, 1), rng.uniform(0.85, 1)
        color = tuple(round(255 * c) for c in colorsys.hsv_to_rgb(hue, saturation, value))
        opacity = rng.uniform(0.8, 1)
        picture.paste(color, mask=covered.point(lambda cover, share=opacity: round(cover * share)))
        mask[np.asarray(covered) > 127] = number + 1
    indices = Image.fromarray(mask, mode="P")
    indices.putpalette([value for color in PALETTE for value in color])
    return picture, indices


def make_folder(folder, classes, count, test_count, seed):
    """Writes `count` pictures with masks to train and `test_count` to test."""
    for split, total in zip(SPLITS, (count, test_count)):
        images, masks = (pathlib.Path(folder, split, name) for name in ("images", "masks"))
        for path in (images, masks):
            path.mkdir(parents=True)
        for number in range(total):
            rng = np.random.default_rng([seed, SPLITS.index(split), number])
            picture, mask = make_pair(halves(split), classes, rng)
            picture.save(images / f"{number:05d}.jpg", quality=90)
            mask.save(masks / f"{number:05d}.png")
    names = "".join(f"{name}\n" for name in ("background", *classes))
    pathlib.Path(folder, "classes.txt").write_text(names)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="the folder to make")
    default = ["circle", "cross"]
    names = {"choices": sorted(OUTLINES), "default": default, "metavar": "CLASS"}
    parser.add_argument("--classes", nargs="+", **names, help=f"among {', '.join(OUTLINES)}")
    parser.add_argument("--count", type=int, default=4000, help="training pictures (4000)")
    parser.add_argument("--test_count", type=int, default=200, help="test pictures (200)")
    parser.add_argument("--seed", type=int, default=0, help="decides everything random (0)")
    options = parser.parse_args(arguments)
    with new_folder(options.folder, parser) as new:
        make_folder(new, options.classes, options.count, options.test_count, options.seed)
    pictures = options.count + options.test_count
    print(f"{options.folder}: {pictures} pictures and masks of {', '.join(options.classes)}")


if __name__ == "__main__":
    sys.exit(main())
