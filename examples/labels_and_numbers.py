"""Makes tables of pictures with several labels, with numbers, and with rare classes.

    python examples/labels_and_numbers.py tables

The pictures are scikit-learn's handwritten digits, and arrows on crops of its two photographs.
tables/labels.csv says of each digit whether it is even, at least five, and round (0, 6, 8 or 9).
tables/angles.csv gives the angle of each arrow in degrees, clockwise from up. tables/rare.csv has
ten classes of digits, of which the first has a hundred times the training pictures of the last. A
picture follows from the seed, its split and its number alone.
"""

import argparse
import csv
import pathlib
import sys

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from examples.shapes_on_photographs import OUTLINES, SPLITS, draw_mask, halves, new_folder

SIZE = (32, 32)  # width and height of the arrows' pictures in pixels
WIDEST = 90  # degrees to either side
CONTRAST = 0.5  # of the photographs, which are darker than the arrows
MOST, RATIO = 100, 100  # training pictures of the largest class, and how many times the smallest's
ROUND = (0, 6, 8, 9)


def digits():
    """The pictures, the digits, and which pictures are held out, as the data set `digits` says."""
    data = load_digits()
    images = np.round(data.images * (255 / 16)).astype("uint8")
    numbers = np.arange(len(images))
    _, test = train_test_split(numbers, test_size=360, stratify=data.target, random_state=0)
    return images, data.target, np.isin(numbers, test)


def draw_arrow(split, rng):
    """Draws an arrow at random on a crop of a photograph, and returns its angle as well."""
    photograph = halves(split)[rng.integers(2)]
    side = rng.uniform(60, 200)
    left, top = (rng.uniform(0, length - side) for length in photograph.size)
    box = (left, top, left + side, top + side)
    picture = photograph.convert("L").resize(SIZE, Image.Resampling.BICUBIC, box)
    picture = picture.point(lambda value: round(CONTRAST * value))
    degrees = rng.uniform(-WIDEST, WIDEST)
    radius, center = rng.uniform(9, 13), rng.uniform(14, 18, 2)
    mask = draw_mask(OUTLINES["arrow"], center, radius, degrees, size=SIZE)
    picture.paste(int(rng.integers(200, 256)), mask=mask)
    return picture, degrees


def rare_sizes(classes=10):
    """The training pictures of each class, which fall by one factor from class to class."""
    return np.maximum(np.round(MOST * RATIO ** (-np.arange(classes) / (classes - 1))), 1).astype(
        int
    )


def write_table(file, columns, rows):
    with open(file, "w", newline="") as table:
        writer = csv.writer(table)
        writer.writerow(columns)
        writer.writerows(rows)


def make_digits(folder, seed):
    """Writes digits/, labels.csv and rare.csv."""
    images, targets, held_out = digits()
    (folder / "digits").mkdir()
    paths = [f"digits/{number:04d}.png" for number in range(len(images))]
    for path, image in zip(paths, images):
        Image.fromarray(image).save(folder / path)
    splits = np.where(held_out, "test", "train")
    facts = [[int(d % 2 == 0), int(d >= 5), int(d in ROUND)] for d in targets]
    columns = ("path", "even", "big", "round", "split")
    rows = [[path, *fact, split] for path, fact, split in zip(paths, facts, splits)]
    write_table(folder / "labels.csv", columns, rows)
    rng, kept = np.random.default_rng(seed), held_out.copy()
    for digit, size in enumerate(rare_sizes()):
        kept[rng.permutation(np.flatnonzero((targets == digit) & ~held_out))[:size]] = True
    rows = [[paths[i], targets[i], splits[i]] for i in np.flatnonzero(kept)]
    write_table(folder / "rare.csv", ("path", "label", "split"), rows)


def make_angles(folder, count, test_count, seed):
    """Writes angles/ and angles.csv."""
    (folder / "angles").mkdir()
    rows = []
    for split, total in zip(SPLITS, (count, test_count)):
        for number in range(total):
            rng = np.random.default_rng([seed, SPLITS.index(split), number])
            picture, degrees = draw_arrow(split, rng)
            path = f"angles/{split}{number:05d}.png"
            picture.save(folder / path)
            rows.append([path, f"{degrees:.3f}", split])
    write_table(folder / "angles.csv", ("path", "angle", "split"), rows)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="the folder to make")
    parser.add_argument("--count", type=int, default=4000, help="arrows to learn from (4000)")
    parser.add_argument("--test_count", type=int, default=400, help="arrows to test (400)")
    parser.add_argument("--seed", type=int, default=0, help="decides everything random (0)")
    options = parser.parse_args(arguments)
    with new_folder(options.folder, parser) as new:
        make_digits(new, options.seed)
        make_angles(new, options.count, options.test_count, options.seed)
    print(f"{options.folder}: labels.csv, rare.csv, angles.csv")


if __name__ == "__main__":
    sys.exit(main())
