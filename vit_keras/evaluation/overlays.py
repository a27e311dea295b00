"""Pictures of masks: with a palette, over their pictures, and side by side."""

import colorsys
import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from vit_keras import extras
from vit_keras.data import thumbnail
from vit_keras.data.depth import viewable
from vit_keras.files import replacing
from vit_keras.tasks import VOID

OPACITY = 0.5  # of a mask over its picture
GOLDEN = 0.618034  # turn of the hue from one class to the next: neighbors differ
SIDE, GAP = 160, 4  # pixels of a picture in a sheet, and between pictures


def palette() -> np.ndarray:
    """The color of each class, `(256, 3)` uint8: class 0 is black, and 255, no class, is white."""
    hues = [(0.02 + GOLDEN * k) % 1 for k in range(VOID)]
    colors = [colorsys.hsv_to_rgb(hue, 0.85, 0.95 if k % 2 else 0.75) for k, hue in enumerate(hues)]
    return np.round(255 * np.array([(0, 0, 0), *colors[1:], (1, 1, 1)])).astype("uint8")


def _pillow():
    return extras.require("PIL.Image", extra="data", purpose="Drawing masks")


def mask_image(mask: np.ndarray):
    """A mask `(H, W)` uint8 as a `PIL.Image.Image` whose pixels are the classes, with a palette."""
    image = _pillow().fromarray(np.asarray(mask, "uint8")).convert("L")
    image.putpalette(palette().reshape(-1).tolist())
    return image


def draw_overlay(picture: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Lays the colors of a mask over a picture.

    Args:
        picture: Pixels `(H, W, C)`, as `data.read_image` gives them.
        mask: The classes, `(H, W)`. Class 0 and pixels without a class stay as they are.

    Returns:
        `(H, W, 3)` uint8.

    Example:
        ```python
        mask = evaluation.predict_mask(predictor, picture)
        PIL.Image.fromarray(evaluation.draw_overlay(picture, mask)).save("overlay.png")
        ```
    """
    picture = np.broadcast_to(viewable(picture), (*picture.shape[:2], 3)).astype("float32")
    covered = ((mask != 0) & (mask != VOID))[..., None] * OPACITY
    mixed = picture * (1 - covered) + palette()[mask] * covered
    return np.round(mixed).astype("uint8")


def write_mask(
    folder: str | os.PathLike, name: str | os.PathLike, picture: np.ndarray, mask: np.ndarray
) -> list[pathlib.Path]:
    """Writes `folder`/masks/NAME.png and `folder`/overlays/NAME.png.

    Args:
        folder: The folder.
        name: The picture's file name, whose suffix is replaced.
        picture: Pixels `(H, W, C)`, as `data.read_image` gives them.
        mask: The classes, `(H, W)` uint8. The PNG holds these numbers, and a palette to look at.

    Returns:
        The two files.

    Example:
        ```python
        evaluation.write_mask("predicted", "cat.jpg", picture, mask)
        ```
    """
    images = {
        "masks": mask_image(mask),
        "overlays": _pillow().fromarray(draw_overlay(picture, mask)),
    }
    files = []
    for kind, image in images.items():
        file = pathlib.Path(folder, kind, name).with_suffix(".png")
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(os.fspath(file)) as temporary:
            image.save(temporary, format="png")
        files.append(file)
    return files


def draw_mask_sheet(rows: Iterable[Sequence[np.ndarray]]):
    """Draws pictures beside their true and their predicted masks.

    Args:
        rows: For each picture its pixels `(H, W, 1 or 3)`, the true mask and the predicted one,
            `(H, W)`.

    Returns:
        A `PIL.Image.Image`: in each row two pictures with their masks.

    Example:
        ```python
        sheet = evaluation.draw_mask_sheet([(picture, true, mask)])
        sheet.save("predictions.png")
        ```
    """
    panels = [
        [thumbnail(picture, SIDE)]
        + [thumbnail(draw_overlay(picture, mask), SIDE) for mask in masks]
        for picture, *masks in rows
    ]
    height = max(panel.shape[0] for row in panels for panel in row) + GAP
    width = max(panel.shape[1] for row in panels for panel in row) + GAP
    columns = max(len(row) for row in panels)
    pairs = -(-len(panels) // 2)
    sheet = np.full((pairs * height - GAP, 2 * columns * width - GAP, 3), 255, "uint8")
    for number, row in enumerate(panels):
        for place, panel in enumerate(row):
            top, left = number // 2 * height, (number % 2 * columns + place) * width
            sheet[top : top + panel.shape[0], left : left + panel.shape[1]] = panel
    return _pillow().fromarray(sheet)
