"""Make a small data set of real photographs, to try the commands on.

The pictures are crops of the two photographs that come with scikit-learn, made in seconds
without a network. No part of a photograph is in both training and test pictures.

examples:
  vit-keras demo-data photos pictures
  vit-keras demo-data tables data/tables --count 300 --test_count 100
"""

import csv
import functools
import itertools
import json
import pathlib
from collections.abc import Callable

import numpy as np

from vit_keras.commands import options as shared
from vit_keras.data.depth import pillow
from vit_keras.support import extras, files
from vit_keras.support.command_line import UsageError

# The outlines in demo_outlines.json, drawn by hand, label each pixel. Each photograph is cut into
# tiles. A crop lies within one tile, and every tile belongs either to training or to test. The
# seed, a crop's split and its number determine the crop.
SIDE = 64  # pixels of a picture's side
ROWS, COLUMNS, HEIGHT, WIDTH = 7, 10, 61, 64  # tiles of a photograph, and pixels of a tile
SPLITS = ("train", "test")
PHOTOGRAPHS = ("china", "flower")
REGIONS = ("flower", "leaves", "sky", "temple", "trees", "water")
COLORS = "fa8c3c 005050 a0c8fa aa1e1e 3c781e 6e8ca0"  # of regions in a mask
PRESENT, MOST = 0.1, 0.75  # the share of a crop above which a region counts, or dominates


@functools.cache
def photographs() -> dict[str, tuple]:
    """Returns `{name: (picture, picture of region numbers)}`."""
    image, draw = pillow(), pillow("ImageDraw")
    datasets = extras.require("sklearn.datasets")
    outlines = json.loads(pathlib.Path(__file__).with_name("demo_outlines.json").read_text())
    pictures = {}
    for name in PHOTOGRAPHS:
        picture = image.fromarray(datasets.load_sample_image(f"{name}.jpg"))
        regions = image.new("L", picture.size)
        for region, text in outlines[name]:  # later ones over earlier ones
            corners = [tuple(map(int, corner.split(","))) for corner in text.split()]
            pen = draw.Draw(regions)  # two corners give the box of an ellipse
            shape = pen.ellipse if len(corners) == 2 else pen.polygon
            shape(corners, fill=REGIONS.index(region))
        pictures[name] = picture, regions
    return pictures


def tiles(split: str) -> list[tuple[str, int, int]]:
    """Returns the photograph, row and column of each tile of a split; a quarter go to test."""
    whole = itertools.product(PHOTOGRAPHS, range(ROWS), range(COLUMNS))
    return [tile for tile in whole if ((tile[2] + 2 * tile[1]) % 4 == 1) == (split == "test")]


def _crops(counts, seed, fits=lambda shares, number: True):
    """Yields the split, the number, and the first random crop whose regions' shares fit.

    A crop is a picture, its regions `(SIDE, SIDE)`, their shares, and the name of its tile.
    """
    for split, count in zip(SPLITS, counts):
        places = tiles(split)
        for number in range(count):
            rng, shares = np.random.default_rng([seed, SPLITS.index(split), number]), None
            while shares is None or not fits(shares, number):
                name, row, column = places[rng.integers(len(places))]
                side = rng.integers(HEIGHT // 2, HEIGHT, endpoint=True)
                left = column * WIDTH + rng.integers(WIDTH - side, endpoint=True)
                top = row * HEIGHT + rng.integers(HEIGHT - side, endpoint=True)
                box = (left, top, left + side, top + side)
                picture, regions = (whole.crop(box) for whole in photographs()[name])
                regions = np.asarray(regions.resize((SIDE, SIDE), 0))  # the nearest pixels
                shares = np.bincount(regions.ravel(), minlength=len(REGIONS)) / regions.size
            picture = picture.resize((SIDE, SIDE), 3)  # bicubic
            yield split, f"{number:05d}", picture, regions, shares, f"{name}-{row}-{column}"


def _save(picture, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, quality=90)  # of JPEG


def _photos(folder, counts, seed):
    fits = lambda shares, number: shares[number % len(REGIONS)] >= MOST
    for split, number, picture, _, shares, _ in _crops(counts, seed, fits):
        _save(picture, folder / split / REGIONS[shares.argmax()] / f"{number}.jpg")


def _tables(folder, counts, seed):
    fits = lambda shares, number: number % 2 == 0 or (shares >= PRESENT).sum() > 1
    rows = [["path", *REGIONS, "sky_percent", "place", "split"]]
    for split, number, picture, _, shares, place in _crops(counts, seed, fits):
        path = f"pictures/{split}{number}.jpg"
        _save(picture, folder / path)
        sky = f"{100 * shares[REGIONS.index('sky')]:.1f}"
        rows.append([path, *(shares >= PRESENT).astype(int), sky, place, split])
    with open(folder / "labels.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)


def _masks(folder, counts, seed):
    fits = lambda shares, number: (shares >= PRESENT).sum() > 1
    for split, number, picture, regions, *_ in _crops(counts, seed, fits):
        mask = pillow().fromarray(regions)
        mask.putpalette(bytes.fromhex(COLORS))
        _save(picture, folder / split / "images" / f"{number}.jpg")
        _save(mask, folder / split / "masks" / f"{number}.png")
    (folder / "classes.txt").write_text("\n".join([*REGIONS, ""]))


def _places(folder, counts, seed):
    for _, number, picture, *_, place in _crops(counts[:1], seed):
        _save(picture, folder / place / f"{number}.jpg")


def _photographs(folder, counts, seed):
    for name, (picture, _) in photographs().items():
        _save(picture, folder / f"{name}.jpg")


# What they are, the function that writes them, and the number of pictures in each split.
KINDS: dict[str, tuple[str, Callable, tuple[int, int]]] = {
    "photos": ("a folder for each of six classes", _photos, (240, 120)),
    "tables": ("labels.csv: six labels, a number and a place per picture", _tables, (600, 200)),
    "masks": ("pictures, and masks of six classes", _masks, (400, 100)),
    "places": ("a folder for each place, to pre-train on", _places, (4000, 0)),
    "photographs": ("the two whole photographs", _photographs, (0, 0)),
}


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    text = "; ".join(f"{name}: {holds}" for name, (holds, *_) in KINDS.items())
    add("name", "NAME", text, choices=list(KINDS))
    add("folder", "FOLDER", "the folder to make")
    add("--count", "N", "training pictures (NAME's default)", int)
    add("--test_count", "N", "test pictures (NAME's default)", int)
    add("--seed", None, "seed of all random choices", int, 0)


def run(options: shared.Options) -> None:
    holds, write, sizes = KINDS[options.name]
    for option, size in zip(("count", "test_count"), sizes):
        if getattr(options, option) is not None and not size:
            raise UsageError(f"--{option} does not apply to {options.name}. Leave it out")
    counts = zip((options.count, options.test_count), sizes)
    files.check_new(options.folder)
    with files.replacing_folder(options.folder) as new:
        write(new, [default if n is None else n for n, default in counts], options.seed)
        made = sum(1 for _ in new.rglob("*.jpg"))
    print(f"{options.folder}: {made} pictures; {holds}")


def needs_models(options: shared.Options) -> bool:
    return False
