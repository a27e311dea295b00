"""A page of queries with the pictures that are most like them: one HTML file."""

import functools
import html
import itertools
import os
import pathlib
from collections.abc import Iterable
from typing import IO

import numpy as np

from vit_keras import data
from vit_keras.evaluation.page import PICTURE_PX, SMALL_PX, data_url, open_template
from vit_keras.retrieval.picture_lists import Picture
from vit_keras.retrieval.search import Answer

TEMPLATE = pathlib.Path(__file__).with_name("page.html")
ANSWERS = "<!-- answers -->\n"  # where the template has the answers
SHOWN_PX = 160  # the longer side on the page
AHEAD = 4  # answers whose pictures are read in advance


def write_page(answers: Iterable[Answer], file: IO[bytes], title: str, folder: str) -> None:
    """Writes the page, answer by answer.

    Args:
        answers: From `search_pictures` or `search_rows`.
        file: The open file.
        title: The heading.
        folder: Where relative paths begin that lead to no file from the working directory.
    """
    head, foot = open_template(TEMPLATE, title, ANSWERS)
    sections = data.read_ahead(functools.partial(_section, folder), answers, AHEAD)
    for text in itertools.chain([head], sections, [foot]):
        file.write(text.encode("utf-8", "backslashreplace"))


def _section(folder, answer):
    error = f'<p class="error">{html.escape(answer.error)}</p>\n' if answer.error else ""
    matches = "".join(_match(folder, match) for match in answer.matches)
    query = f'<figure class="query">\n{_picture(folder, answer.query)}{error}</figure>\n'
    return f"<section>\n{query}{matches}</section>\n"


def _match(folder, match):
    share = f"{100 * max(0.0, match.similarity):.1f}%"
    return (
        f'<figure data-similarity="{np.float32(match.similarity)}">\n'
        f"{_picture(folder, match.picture)}"
        f'<data value="{np.float32(match.similarity)}" style="--share:{share}">'
        f"{match.similarity:.3f}</data>\n</figure>\n"
    )


def _picture(folder, picture: Picture):
    """The picture, where its file can be read, with its name and label."""
    path, name = html.escape(picture.path), html.escape(os.path.basename(picture.path))
    label = "" if picture.label is None else f" <i>{html.escape(picture.label)}</i>"
    return (
        f'{_image(folder, picture)}<figcaption title="{path}"><b>{name}</b>{label}</figcaption>\n'
    )


def _image(folder, picture):
    path = picture.path if os.path.exists(picture.path) else os.path.join(folder, picture.path)
    try:
        pixels = data.thumbnail(data.read_image(path, None), PICTURE_PX)
    except (OSError, ValueError):
        return '<div class="none">no picture</div>\n'
    sides = np.array(pixels.shape[:2])
    height, width = np.maximum(1, np.round(sides * SHOWN_PX / sides.max())).astype(int)
    kind = ' class="small"' if sides.max() <= SMALL_PX else ""
    source = data_url(pixels, "jpeg", quality=85)
    return f'<img{kind} src="{source}" width="{width}" height="{height}" alt="">\n'
