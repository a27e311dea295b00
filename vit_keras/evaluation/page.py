"""A page of pictures with their predicted classes: one HTML file that needs no other."""

import base64
import html
import io
import itertools
import os
import pathlib
from collections.abc import Iterable
from typing import IO

import numpy as np

from vit_keras.data.pillow_images import pillow_image
from vit_keras.evaluation.file_predictions import FilePrediction

FOLDER = pathlib.Path(__file__).parent
HEAD, TEMPLATE = FOLDER / "page_head.html", FOLDER / "page.html"
PICTURES = "<!-- pictures -->\n"  # where the template has the pictures
PICTURE_PX = 256  # the longer side of the pictures in the file
SHOWN_PX = 192  # the longer side on the page
SMALL_PX = 64  # pictures up to this side are enlarged with visible pixels
DARKEST = 0.8  # the opacity over patches without attention


def write_page(
    predictions: Iterable[FilePrediction],
    file: IO[bytes],
    threshold: float | None,
    title: str,
    numbers: bool = False,
) -> None:
    """Writes the page, picture by picture.

    Args:
        predictions: From `predict_files` with `picture_px=PICTURE_PX`.
        file: The open file.
        threshold: The least probability of a class, or None.
        title: The heading.
        numbers: Whether numbers are predicted instead of classes.
    """
    head, foot = open_template(TEMPLATE, title, PICTURES)
    figures = (_figure(prediction, threshold, numbers) for prediction in predictions)
    for text in itertools.chain([head], figures, [foot]):
        file.write(text.encode("utf-8", "backslashreplace"))


def open_template(template: pathlib.Path, title: str, marker: str) -> list[str]:
    """A page before and after `marker`, with the beginning that all pages have."""
    text = HEAD.read_text("utf-8") + template.read_text("utf-8")
    return text.replace("{title}", html.escape(title)).split(marker)


def answer_text(name: str, value: float, is_number: bool) -> str:
    """A class and its probability, or a number, as in "cat 98.2%" and "age 34.5"."""
    return f"{name} {value:.5g}" if is_number else f"{name} {100 * value:.1f}%"


def nothing_at(threshold: float | None) -> str:
    """Why a picture has no class."""
    return "nothing" if threshold is None else f"no class at {100 * threshold:g}% or more"


def _figure(prediction, threshold, numbers):
    """One picture with its classes, or with the reason why it has none."""
    attributes, text = ' class="error"', f"<p>{html.escape(prediction.error or '')}</p>"
    if prediction.classes and numbers:
        lines = (html.escape(answer_text(name, value, True)) for name, value in prediction.classes)
        attributes, text = "", f"<p>{'<br>'.join(lines)}</p>"
    elif prediction.classes:
        (name, share), *_ = prediction.classes
        attributes = f' data-class="{html.escape(name)}" data-confidence="{share:.6g}"'
        text = f"<ol>\n{''.join(_line(name, share) for name, share in prediction.classes)}</ol>"
    elif not prediction.error:
        attributes, text = ' class="none"', f"<p>{nothing_at(threshold).replace('%', ' %')}</p>"
    path, name = html.escape(os.fspath(prediction.path)), html.escape(prediction.path.name)
    return (
        f"<figure{attributes}>\n{_picture(prediction)}"
        f'<figcaption><b title="{path}">{name}</b>\n{text}</figcaption>\n</figure>\n'
    )


def _line(name, share):
    percent = f"{100 * share:.1f}"
    return (
        f'<li style="--share:{percent}%"><span>{html.escape(name)}</span> '
        f'<data value="{np.float32(share)}">{percent} %</data></li>\n'
    )


def _picture(prediction):
    if prediction.picture is None:
        return ""
    sides = np.array(prediction.picture.shape[:2])
    height, width = np.maximum(1, np.round(sides * SHOWN_PX / sides.max())).astype(int)
    kind = "picture small" if sides.max() <= SMALL_PX else "picture"
    source = data_url(prediction.picture, "jpeg", quality=85)
    return (
        f'<div class="{kind}" style="width:{width}px;height:{height}px">'
        f'<img src="{source}" alt="">{_attention(prediction)}</div>\n'
    )


def _attention(prediction):
    """A dark layer over the part that the model sees, clear where its attention is."""
    if prediction.attention is None:
        return ""
    share = prediction.attention / prediction.attention.max()
    layer = np.zeros((*share.shape, 2), "uint8")  # gray and opacity
    layer[..., 1] = np.round(255 * DARKEST * (1 - share))
    names = ("top", "left", "height", "width")
    place = ";".join(f"{name}:{100 * x:.4g}%" for name, x in zip(names, prediction.seen))
    source = data_url(layer, "png")
    return f'<img class="attention" style="{place}" src="{source}" alt="attention">'


def data_url(pixels, kind, **options):
    """A picture as text, which a page holds itself."""
    buffer = io.BytesIO()
    pillow_image().fromarray(pixels).save(buffer, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
