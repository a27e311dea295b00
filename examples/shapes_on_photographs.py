"""Makes a folder of pictures to learn from: shapes drawn on crops of two photographs.

    python examples/shapes_on_photographs.py photos
    python examples/shapes_on_photographs.py photos --classes heart arrow cross --count 3000

The first command makes photos/train/circle/00000.jpg and so on: circles, squares, triangles and
stars in bright colors, filled or outlined, partly transparent, tilted by up to 25 degrees, at any
place. The photographs come with scikit-learn. Training pictures show their left halves and test
pictures their right halves, so that no background is in both. A picture follows from the seed, its
split and its number alone.
"""

import argparse
import colorsys
import contextlib
import functools
import pathlib
import shutil
import sys
import tempfile

import numpy as np
from PIL import Image, ImageDraw
from sklearn.datasets import load_sample_images

SIZE = (160, 120)  # width and height in pixels
SPLITS = ("train", "test")  # of the left and of the right halves
FINE = 4  # a mask is drawn this many times finer, so that its edges are smooth


def ring(*degrees, radius=1.0):
    """Corners at angles from the top, clockwise: `(N, 2)`, x to the right and y down."""
    angles = np.deg2rad(degrees)
    return np.stack([np.sin(angles), -np.cos(angles)], axis=1) * np.reshape(radius, (-1, 1))


def mirrored(*right):
    """The corners of a symmetric outline, whose right half has these corners from the top down."""
    return np.array([*right, *((-x, y) for x, y in reversed(right))])


def regular(corners):
    return ring(*np.linspace(0, 360, corners, endpoint=False))


def _heart():
    t = np.linspace(0, 2 * np.pi, 72, endpoint=False)
    y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return np.stack([16 * np.sin(t) ** 3, -y - 2], axis=1) / 17


def _crescent():
    inner = ring(*np.linspace(148, 32, 36), radius=0.85) - (0.45, 0)
    return np.concatenate([ring(*np.linspace(0, 180, 48)), inner])


OUTLINES = {  # corners about the center, at most about 1 from it
    "arrow": mirrored((0, -1), (0.8, -0.1), (0.3, -0.1), (0.3, 1)),
    "bolt": np.array([(0.3, -1), (-0.6, 0.2), (0, 0.2), (-0.3, 1), (0.6, -0.2), (0, -0.2)]),
    "circle": regular(72),
    "crescent": _crescent(),
    "cross": mirrored((0.33, -1), (0.33, -0.33), (1, -0.33), (1, 0.33), (0.33, 0.33), (0.33, 1)),
    "drop": np.concatenate([[(0, -1)], ring(*np.linspace(60, 300, 48), radius=0.62) + (0, 0.38)]),
    "fan": np.concatenate([[(0, 0.5)], ring(*np.linspace(-50, 50, 24), radius=1.4) + (0, 0.5)]),
    "heart": _heart(),
    "hexagon": regular(6),
    "hourglass": mirrored((0.7, -0.9), (0.12, 0), (0.7, 0.9)),
    "house": mirrored((0, -1), (0.8, -0.2), (0.8, 0.8)),
    "parallelogram": np.array([(-0.35, -0.5), (1, -0.5), (0.35, 0.5), (-1, 0.5)]),
    "square": regular(4),
    "star": ring(*range(0, 360, 36), radius=[1, 0.42] * 5),
    "trapezoid": mirrored((0.4, -0.6), (0.95, 0.6)),
    "triangle": regular(3),
}


def draw_mask(outline, center, radius, degrees=0.0, thickness=None, size=SIZE):
    """Draws an outline: how much of each pixel it covers.

    Args:
        outline: Corners about (0, 0), `(N, 2)`.
        center: x and y in pixels.
        radius: The pixels of a distance of 1 in `outline`.
        degrees: The angle by which the shape is turned clockwise.
        thickness: The width of the line in pixels; None fills the shape.
        size: Width and height of the picture in pixels.

    Returns:
        A picture in mode "L", 255 where a pixel is covered.
    """
    (cos, sin), around = (f(np.deg2rad(degrees)) for f in (np.cos, np.sin)), np.asarray(outline)
    turned = around @ [[cos, sin], [-sin, cos]] * radius + center
    corners = [tuple(corner) for corner in turned * FINE - 0.5]
    mask = Image.new("L", (size[0] * FINE, size[1] * FINE))
    if thickness is None:
        ImageDraw.Draw(mask).polygon(corners, fill=255)
    else:
        line = [*corners, *corners[:2]]  # past the first corner, so that it is round as well
        ImageDraw.Draw(mask).line(line, fill=255, width=round(thickness * FINE), joint="curve")
    return mask.reduce(FINE)


def make_picture(photographs, name, rng):
    """Draws a shape at random on a random crop of one of the photographs."""
    photograph = photographs[rng.integers(len(photographs))]
    width = rng.uniform(80, 240)
    height = width * SIZE[1] / SIZE[0]
    left, top = rng.uniform(0, photograph.width - width), rng.uniform(0, photograph.height - height)
    box = (left, top, left + width, top + height)
    picture = photograph.resize(SIZE, Image.Resampling.BICUBIC, box)
    radius, degrees = rng.uniform(38, 54), rng.uniform(-25, 25)
    center = [rng.uniform(radius, side - radius) for side in SIZE]
    thickness = rng.uniform(5, radius / 4) if rng.random() < 0.4 else None
    mask = draw_mask(OUTLINES[name], center, radius, degrees, thickness)
    hue, saturation, value = rng.random(), rng.uniform(0.3, 1), rng.uniform(0.85, 1)
    color = tuple(round(255 * c) for c in colorsys.hsv_to_rgb(hue, saturation, value))
    opacity = rng.uniform(0.6, 1)
    picture.paste(color, mask=mask.point(lambda covered: round(covered * opacity)))
    return picture


@functools.cache
def halves(split):
    """The halves of the photographs that a split shows."""
    images = map(Image.fromarray, load_sample_images().images)
    side = SPLITS.index(split)
    return [i.crop((i.width // 2 * side, 0, i.width // 2 * (side + 1), i.height)) for i in images]


def make_folder(folder, classes, count, test_count, seed):
    """Writes `count` pictures to train and `test_count` to test, as many of each class."""
    for split, total in zip(SPLITS, (count, test_count)):
        for number in range(total):
            name = classes[number % len(classes)]
            rng = np.random.default_rng([seed, SPLITS.index(split), number])
            file = pathlib.Path(folder, split, name, f"{number:05d}.jpg")
            file.parent.mkdir(parents=True, exist_ok=True)
            make_picture(halves(split), name, rng).save(file, quality=90)


def contact_sheet(folder, columns=8, rows=4):
    """The first training pictures of each class in `folder`, side by side."""
    classes = sorted(pathlib.Path(folder, "train").iterdir())
    files = zip(*(sorted(path.iterdir())[: columns * rows] for path in classes))
    files = [file for row in files for file in row][: columns * rows]
    sheet = Image.new("RGB", (SIZE[0] * columns, SIZE[1] * rows))
    for number, file in enumerate(files):
        sheet.paste(Image.open(file), (number % columns * SIZE[0], number // columns * SIZE[1]))
    return sheet


@contextlib.contextmanager
def new_folder(folder, parser):
    """A folder to fill, which becomes `folder` at the end; `parser` refuses one that exists."""
    if folder.exists():
        parser.error(f"the folder must be new, so that nothing is lost. Received: {folder}")
    parent = folder.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    new = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=parent))
    try:
        yield new
        new.rename(folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(new)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="the folder to make")
    default = ["circle", "square", "triangle", "star"]
    names = {"choices": sorted(OUTLINES), "default": default, "metavar": "CLASS"}
    parser.add_argument("--classes", nargs="+", **names, help=f"among {', '.join(OUTLINES)}")
    parser.add_argument("--count", type=int, default=200, help="training pictures (200)")
    parser.add_argument("--test_count", type=int, default=400, help="test pictures (400)")
    parser.add_argument("--seed", type=int, default=0, help="decides everything random (0)")
    parser.add_argument("--sheet", metavar="FILE", help="also write a picture of the first 32")
    options = parser.parse_args(arguments)
    with new_folder(options.folder, parser) as new:
        make_folder(new, options.classes, options.count, options.test_count, options.seed)
    if options.sheet:
        contact_sheet(options.folder).save(options.sheet)
    pictures = options.count + options.test_count
    print(f"{options.folder}: {pictures} pictures of {', '.join(options.classes)}")


if __name__ == "__main__":
    sys.exit(main())
