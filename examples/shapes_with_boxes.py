"""Makes pictures and boxes to learn detection from: shapes drawn on crops of photographs.

    python examples/shapes_with_boxes.py shapes
    python examples/shapes_with_boxes.py others --classes arrow bolt heart house --count 4000

The first command makes a YOLO folder: shapes/train/images/00000.jpg, shapes/train/labels/00000.txt
and so on, and shapes/data.yaml. Each picture has one to six circles, crosses, squares and triangles
in bright colors, partly transparent, tilted by up to 25 degrees, at any place; boxes of two of them
overlap by at most a fifth. Training pictures show the left halves of two photographs, and test
pictures their right halves. A picture follows from the seed, its split and its number alone.
"""

import argparse
import colorsys
import pathlib
import sys

import numpy as np
from PIL import Image

from vit_keras.support.box_metrics import overlaps

try:
    from examples.shapes_on_photographs import OUTLINES, SIZE, SPLITS, draw_mask, halves, new_folder
except ImportError:  # as a script
    from shapes_on_photographs import OUTLINES, SIZE, SPLITS, draw_mask, halves, new_folder

CONTRAST = 0.7  # of the photographs, which are darker than the shapes
MOST, OVERLAP = 6, 0.2  # objects in a picture, and the largest overlap of their boxes
TRIES = 20


def make_picture(photographs, classes, rng):
    """Draws shapes on a random crop of one of the photographs.

    Returns:
        The picture, and the number of the class, left, top, right and bottom of each shape.
    """
    photograph = photographs[rng.integers(len(photographs))]
    width = rng.uniform(80, 240)
    height = width * SIZE[1] / SIZE[0]
    left, top = rng.uniform(0, photograph.width - width), rng.uniform(0, photograph.height - height)
    box = (left, top, left + width, top + height)
    picture = photograph.resize(SIZE, Image.Resampling.BICUBIC, box)
    picture, objects = picture.point(lambda value: round(CONTRAST * value)), []
    for _ in range(rng.integers(1, MOST + 1)):
        placed = _place(classes, [corners for _, *corners in objects], rng)
        if placed is None:
            continue
        number, covered, corners = placed
        hue, saturation, value = rng.random(), rng.uniform(0.3, 1), rng.uniform(0.85, 1)
        color = tuple(round(255 * c) for c in colorsys.hsv_to_rgb(hue, saturation, value))
        opacity = rng.uniform(0.8, 1)
        picture.paste(color, mask=covered.point(lambda cover, share=opacity: round(cover * share)))
        objects.append((int(number), *corners))
    return picture, objects


def _place(classes, others, rng):
    """Draws a shape that covers little of the others; None if there is no place for it."""
    for _ in range(TRIES):
        number, radius = rng.integers(len(classes)), rng.uniform(14, 28)
        center = [rng.uniform(radius, side - radius) for side in SIZE]
        covered = draw_mask(OUTLINES[classes[number]], center, radius, rng.uniform(-25, 25))
        corners = covered.point(lambda cover: 255 * (cover > 127)).getbbox()
        shared = overlaps(np.array(corners), np.reshape(others, (-1, 4)))
        if (shared <= OVERLAP).all():
            return number, covered, corners
    return None


def make_folder(folder, classes, count, test_count, seed):
    """Writes `count` pictures with boxes to train and `test_count` to test."""
    for split, total in zip(SPLITS, (count, test_count)):
        images, labels = (pathlib.Path(folder, split, name) for name in ("images", "labels"))
        for path in (images, labels):
            path.mkdir(parents=True)
        for number in range(total):
            rng = np.random.default_rng([seed, SPLITS.index(split), number])
            picture, objects = make_picture(halves(split), classes, rng)
            picture.save(images / f"{number:05d}.jpg", quality=90)
            lines = []
            for kind, left, top, right, bottom in objects:
                center = (left + right) / 2 / SIZE[0], (top + bottom) / 2 / SIZE[1]
                sides = (right - left) / SIZE[0], (bottom - top) / SIZE[1]
                lines.append(" ".join(map(str, (kind, *center, *sides))))
            (labels / f"{number:05d}.txt").write_text("\n".join([*lines, ""]))
    names = ", ".join(classes)
    text = f"train: train/images\nval: test/images\nnames: [{names}]\n"
    pathlib.Path(folder, "data.yaml").write_text(text)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="the folder to make")
    default = ["circle", "cross", "square", "triangle"]
    names = {"choices": sorted(OUTLINES), "default": default, "metavar": "CLASS"}
    parser.add_argument("--classes", nargs="+", **names, help=f"among {', '.join(OUTLINES)}")
    parser.add_argument("--count", type=int, default=400, help="training pictures (400)")
    parser.add_argument("--test_count", type=int, default=200, help="test pictures (200)")
    parser.add_argument("--seed", type=int, default=0, help="decides everything random (0)")
    options = parser.parse_args(arguments)
    with new_folder(options.folder, parser) as new:
        make_folder(new, options.classes, options.count, options.test_count, options.seed)
    pictures = options.count + options.test_count
    print(f"{options.folder}: {pictures} pictures and boxes of {', '.join(options.classes)}")


if __name__ == "__main__":
    sys.exit(main())
