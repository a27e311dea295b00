"""The options of models of masks, which several commands take."""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from vit_keras.support import extras

SHOWN = 8  # pictures of a sheet


def add_mask_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--tiles` and `--overlap`."""
    group = parser.add_argument_group("models of masks")
    tiles = "predict in tiles of the model's size, at full resolution, instead of resizing"
    group.add_argument("--tiles", action="store_true", help=tiles)
    overlap = "least share of a tile's side that neighbors have in common (0.25)"
    group.add_argument("--overlap", type=float, default=0.25, metavar="P", help=overlap)


def mask_options(options: argparse.Namespace, batch: int) -> Any:
    """The `MaskOptions` of the command line."""
    from vit_keras import evaluation

    return evaluation.MaskOptions(options.tiles, options.overlap, batch)


def predict_to_folder(predictor, paths: Sequence[pathlib.Path], options, folder: str) -> int:
    """Writes the mask and the overlay of each picture into a folder.

    Args:
        predictor: A `Predictor` of masks.
        paths: The pictures.
        options: The command line of `predict`.
        folder: The folder, which gets folders masks and overlays.

    Returns:
        The number of pictures that could not be read, with `--skip_unreadable`.
    """
    from vit_keras import evaluation
    from vit_keras.evaluation.file_predictions import read_picture

    tqdm = extras.require("tqdm", extra="data", purpose="The progress bar").tqdm
    chosen, unreadable = mask_options(options, options.batch), 0
    for path, name in zip(tqdm(paths, unit=" pictures", disable=None), names_in(paths)):
        try:
            picture = read_picture(predictor, path)
        except (OSError, ValueError) as error:
            if not options.skip_unreadable:
                raise
            print(error, file=sys.stderr)
            unreadable += 1
            continue
        mask = evaluation.predict_mask(predictor, picture, chosen)
        evaluation.write_mask(folder, name, picture, mask)
    predictor.disagreement.report()
    return unreadable


def names_in(paths: Sequence[pathlib.Path]) -> list[str]:
    """A file name for each picture: its own, with a number where others have the same stem."""
    names, taken = [], set()
    for path in map(pathlib.Path, paths):
        name, count = path.stem, 1
        while name in taken:
            count += 1
            name = f"{path.stem}_{count}"
        taken.add(name)
        names.append(f"{name}.png")
    return names


def write_sheet(predictor, split, chosen, path: pathlib.Path) -> None:
    """Draws the first pictures of a split beside their true and their predicted masks."""
    from vit_keras import evaluation
    from vit_keras.support.files import replacing

    split = split.read_as(predictor.preprocessing.levels, predictor.preprocessing.bands)
    rows = []
    for index in range(min(SHOWN, len(split))):
        picture, mask = split.example(index)
        predicted = evaluation.predict_mask(predictor, picture, chosen)
        rows.append((picture, mask, predicted))
    with replacing(str(path)) as temporary:
        evaluation.draw_mask_sheet(rows).save(temporary, format="png")
