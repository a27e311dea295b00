"""Writes answers about pictures as text, CSV, JSON lines, Parquet, or one HTML page."""

import base64
import codecs
import csv
import html
import io
import itertools
import json
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any

import numpy as np

from vit_keras import data
from vit_keras.data.depth import pillow
from vit_keras.evaluation.box_prediction import draw_boxes
from vit_keras.evaluation.file_predictions import FilePrediction
from vit_keras.support import extras
from vit_keras.support.box_metrics import coco_document
from vit_keras.support.checks import check_choice
from vit_keras.support.command_line import on_one_line, visible_json
from vit_keras.support.files import replacing
from vit_keras.support.tasks import CLASSES, Task

PICTURE_PX = 256  # the longer side of the pictures in a page's file
SHOWN_PX = 192  # the longer side on the page
SMALL_PX = 64  # pictures up to this side are enlarged with visible pixels


def write_answers(answers: Iterable, file: IO[bytes], form: str, show: Callable, columns, title):
    """Writes each answer before taking the next one; Parquet is written 4096 rows at a time.

    Args:
        answers: The answers.
        file: The open file.
        form: "table" (text), "csv", "jsonl", "parquet", or "html" (a self-contained page).
        show: Maps an answer to its lines for "table", to its HTML for "html", to a value for
            "jsonl", and to rows of a table otherwise, where a missing column is null.
        columns: The columns of a table, and Arrow's names for their types.
        title: The heading of a page.

    Raises:
        ImportError: If PyArrow is not installed, for "parquet".
    """
    shown = map(show, answers)
    if form in WRITERS:
        return WRITERS[form](file, columns, itertools.chain.from_iterable(shown))
    head, end, foot = "", "\n", ""
    if form == "html":
        page = pathlib.Path(__file__).with_name("page.html").read_text("utf-8")
        head, foot = page.replace("{title}", html.escape(title)).split("<!-- answers -->\n")
        end = ""
    elif form == "jsonl":
        shown = map(visible_json, shown)
    for text in itertools.chain([head], (text + end for text in shown), [foot]):
        file.write(text.encode("utf-8", "backslashreplace"))


def _write_csv(file, columns, rows):
    """Writes each row as it comes: numbers with all digits of their type, null as an empty cell."""
    text = codecs.getwriter("utf-8")(file, "backslashreplace")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_no_formula, columns))
    for row in rows:
        writer.writerow(_csv_text(row.get(name), kind) for name, kind in columns.items())


def _csv_text(value, kind):
    if value is None:
        return ""
    if kind == "bool":
        return str(bool(value)).lower()
    return _no_formula(value) if kind == "string" else str(np.dtype(kind).type(value))


def _no_formula(text: str) -> str:
    """Puts an apostrophe before text that a spreadsheet would evaluate, as OWASP advises."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _write_parquet(file, columns, rows):
    parquet = extras.require("pyarrow.parquet")
    arrow = extras.require("pyarrow")
    schema = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in columns.items()])
    rows = iter(rows)
    with parquet.ParquetWriter(file, schema) as writer:
        while chunk := list(itertools.islice(rows, 4096)):
            for row in chunk:
                row |= {name: utf8(value) for name, value in row.items() if isinstance(value, str)}
            writer.write_batch(arrow.RecordBatch.from_pylist(chunk, schema))


# The writers of tables, which take the open file, the columns, and the rows.
WRITERS: dict[str, Callable] = {"parquet": _write_parquet, "csv": _write_csv}


def utf8(path: str | os.PathLike) -> str:
    """Returns a path with an escape such as `\\udcff` for each byte that is not UTF-8."""
    return os.fspath(path).encode("utf-8", "backslashreplace").decode()


def shortest(value: float) -> float:
    """Returns the float with the fewest digits that equals `value` in float32."""
    return float(str(np.float32(value)))


def picture_html(pixels: np.ndarray, layer: str = "") -> str:
    """Returns a picture as HTML that holds its pixels, with another HTML layer over it."""
    sides = np.array(pixels.shape[:2])
    height, width = np.maximum(1, np.round(sides * SHOWN_PX / sides.max())).astype(int)
    kind = "picture small" if sides.max() <= SMALL_PX else "picture"
    return (
        f'<div class="{kind}" style="width:{width}px;height:{height}px">'
        f'<img src="{data_url(pixels, "jpeg", quality=85)}" alt="">{layer}</div>\n'
    )


def data_url(pixels: np.ndarray, kind: str, **options: Any) -> str:
    """Returns a picture as a data URL for a self-contained page."""
    buffer = io.BytesIO()
    pillow().fromarray(pixels).save(buffer, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def write_predictions(
    path: str | os.PathLike,
    probabilities: np.ndarray,
    labels: np.ndarray,
    paths: Sequence[str] | None = None,
    *,
    task: Task = CLASSES,
    names: Sequence[str] = (),
) -> None:
    """Writes one row per image: index, path (if known), label, predicted, confidence, correct.

    `label` and `predicted` are classes from 0 to K − 1, and `confidence` is the probability of
    `predicted`. For labels and numbers, each output has the columns label_NAME and predicted_NAME
    instead: the true value, empty if unknown, and the predicted probability or number. An existing
    file is replaced atomically.

    Args:
        path: A .parquet or .csv file.
        probabilities: `(N, K)`; for numbers, the predicted numbers.
        labels: `(N,)` integers, or `(N, K)`.
        paths: The names of the images.
        task: What the outputs are.
        names: The K names, for labels and numbers.

    Raises:
        ValueError: If the suffix is neither .parquet nor .csv.
        ImportError: If PyArrow is not installed, for .parquet.

    Example:
        ```python
        probabilities = evaluation.probabilities(model, images)
        evaluation.write_predictions("predictions.csv", probabilities, labels)
        ```
    """
    suffix = pathlib.Path(path).suffix[1:]
    check_choice(suffix, WRITERS, "suffix")
    named = [] if paths is None else [[os.fspath(name) for name in paths]]
    columns = {"index": "int64"} | ({"path": "string"} if named else {})
    if task.kind == "classes":
        columns |= {"label": "int32", "predicted": "int32", "confidence": "float32"}
        columns["correct"] = "bool"
        best, confidence = probabilities.argmax(axis=-1), probabilities.max(axis=-1)
        values = [x.tolist() for x in (labels, best, confidence, best == labels)]
    else:
        columns |= {f"{of}_{name}": "float32" for name in names for of in ("label", "predicted")}
        pairs = np.stack([labels, probabilities], axis=-1).reshape(len(labels), -1).T
        values = [[None if x != x else x for x in column] for column in pairs.tolist()]
    rows = zip(range(len(labels)), *named, *values, strict=True)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        WRITERS[suffix](file, columns, (dict(zip(columns, row, strict=True)) for row in rows))


SEPARATOR, BOUNDS = "; ", ("_low", "_high")  # between possible names; of an interval's columns
CORNERS = ("left", "top", "right", "bottom")


def write_file_predictions(
    predictions: Iterable[FilePrediction],
    file: IO[bytes],
    form: str,
    kind: str = "classes",
    *,
    names: Sequence[str] = (),
    top: int = 5,
    coverage: float | None = None,
    title: str = "Predictions",
) -> None:
    """Writes predictions for picture files, each row before taking the next prediction.

    All formats write the same rows in the order of the predictions. If a picture has fewer classes
    than `top`, the others are empty or absent. Probabilities are the shortest decimals that restore
    the float32 values. Bytes of a file name that are not UTF-8 become escapes such as `\\udcff`.

    Args:
        predictions: From `predict_files`; with `picture_px` for a page.
        file: The open file.
        form: "table" is a line of text for each picture. "csv" and "parquet" have the columns
            path, class_1, probability_1, …, error; for numbers, a column for each one; for boxes, a
            row for each box, with the columns path, class, score, left, top, right, bottom and
            error, and a row without a box for other pictures. "jsonl" has an object in each line.
            "coco", for boxes, is one JSON object with images, annotations (with scores) and
            categories. "html" is a self-contained page of the pictures with their labels. All
            coordinates are in pixels of the picture.
        kind: What the predictions are, as in `Task`.
        names: The K names, for numbers and for COCO's JSON.
        top: The largest number of classes per picture, as in `predict_files`.
        coverage: As in `predict_files`; adds the possible classes or the intervals to all formats.
        title: The heading of a page.

    Raises:
        ImportError: If PyArrow is not installed, for "parquet".
        ValueError: If a number has the name of another column, for "csv" and "parquet".

    Example:
        ```python
        rows = evaluation.predict_files(predictor, paths, top=3)
        with open("labels.csv", "wb") as file:
            evaluation.write_file_predictions(rows, file, "csv", top=3)
        ```
    """
    if form == "coco":
        facts = lambda p: {"file_name": utf8(p.path), "width": p.size[0], "height": p.size[1]}
        document = coco_document(((facts(p), p.boxes) for p in predictions), names)
        file.write(json.dumps(document).encode())
        return
    if kind == "numbers":
        ends = ("", *BOUNDS) if coverage else ("",)
        columns = {f"{name}{end}": "float32" for name in names for end in ends}
        if form in WRITERS and len({*columns, "path", "error"}) < len(names) * len(ends) + 2:
            raise ValueError(
                "The numbers, their bounds, the path and the error need different column names in "
                f"a table. Received: numbers named {list(names)}. Give --format jsonl"
            )
    elif kind == "boxes":
        columns = {"class": "string", **dict.fromkeys(("score", *CORNERS), "float32")}
    else:
        ranked = {"class": "string", "probability": "float32"}
        columns = {f"{name}_{k}": of for k in range(1, top + 1) for name, of in ranked.items()}
        columns |= {"possible": "string"} if coverage else {}
    columns = {"path": "string", **columns, "error": "string"}
    shows: dict[str, Callable] = {"table": _text, "jsonl": _fields, "html": _figure}
    write_answers(predictions, file, form, shows.get(form, _rows), columns, title)


def _texts(prediction):
    """Returns "cat 98.2%", "age 34.5 [30, 39]", or "cat 98.2% [4, 10, 64, 80]"."""
    show = "{} {:.5g}" if prediction.kind == "numbers" else "{} {:.1%}"
    places = [f" [{a:.5g}, {b:.5g}]" for a, b in prediction.intervals or ()]
    places += [f" [{', '.join(f'{x:.0f}' for x in box)}]" for box in prediction.boxes.corners]
    texts = [show.format(*pair) for pair in prediction.classes]
    return ["".join(pair) for pair in itertools.zip_longest(texts, places, fillvalue="")]


def _text(prediction):
    texts = ", ".join(_texts(prediction)) or prediction.nothing
    if prediction.possible is not None:
        texts += f"; {_possible_text(prediction)}"
    return on_one_line(f"{prediction.path}: {prediction.error or texts}")


def _possible_text(prediction):
    return f"possible: {SEPARATOR.join(prediction.possible) or 'none'}"


def _fields(prediction):
    values, fields = [(name, shortest(value)) for name, value in prediction.classes], {}
    if prediction.kind == "boxes":
        corners = [[*map(shortest, of_box)] for of_box in prediction.boxes.corners]
        fields = dict(zip(("width", "height"), prediction.size))
        pairs = zip(values, corners)
        fields["boxes"] = [{"name": n, "score": x, "corners": of} for (n, x), of in pairs]
    elif prediction.kind == "numbers":
        fields["numbers"] = dict(values)
    else:
        fields["classes"] = [{"name": name, "probability": share} for name, share in values]
    if prediction.possible is not None:
        fields["possible"] = list(prediction.possible)
    if prediction.intervals is not None:
        known = lambda x: shortest(x) if math.isfinite(x) else None
        bounds = [[*map(known, pair)] for pair in prediction.intervals]
        fields["intervals"] = {name: pair for (name, _), pair in zip(values, bounds)}
    return {"path": os.fspath(prediction.path), **fields, "error": prediction.error}


def _rows(prediction):
    """Returns the rows of a picture: one for each box, or a single one."""
    row = {"path": os.fspath(prediction.path), "error": prediction.error}
    if prediction.kind == "boxes":
        pairs = zip(prediction.classes, prediction.boxes.corners)
        boxes = [{"class": n, "score": x, **dict(zip(CORNERS, of))} for (n, x), of in pairs]
        return [{**row, **box} for box in boxes] or [row]
    if prediction.kind == "numbers":
        row |= dict(prediction.classes)
        for (name, _), bounds in zip(prediction.classes, prediction.intervals or ()):
            row |= {f"{name}{end}": bound for end, bound in zip(BOUNDS, bounds)}
        return [row]
    if prediction.possible is not None:
        row["possible"] = SEPARATOR.join(prediction.possible)
    for rank, (name, share) in enumerate(prediction.classes, 1):
        row |= {f"class_{rank}": name, f"probability_{rank}": share}
    return [row]


def _figure(prediction):
    """Returns a picture with its classes, or with the reason why it has none, as HTML."""
    attributes, text = ' class="error"', f"<p>{html.escape(prediction.error or '')}</p>"
    if prediction.classes and prediction.kind == "numbers":
        attributes, text = "", f"<p>{'<br>'.join(map(html.escape, _texts(prediction)))}</p>"
    elif prediction.classes:
        (name, share), *_ = prediction.classes
        attributes = f' data-class="{html.escape(name)}" data-confidence="{share:.6g}"'
        lines = [
            f'<li style="--share:{100 * p:.1f}%"><span>{html.escape(of)}</span> '
            f'<data value="{np.float32(p)}">{100 * p:.1f}%</data></li>\n'
            for of, p in prediction.classes
        ]
        text = f"<ol>\n{''.join(lines)}</ol>"
    elif not prediction.error:
        attributes, text = ' class="none"', f"<p>{prediction.nothing}</p>"
    if prediction.possible is not None:
        text += f"<p>{html.escape(_possible_text(prediction))}</p>"
    pixels = prediction.picture
    if prediction.kind == "boxes" and pixels is not None:
        pixels, boxes = data.thumbnail(pixels, PICTURE_PX), prediction.boxes
        corners = boxes.corners * pixels.shape[1] / prediction.size[0]
        names = {k: name for k, (name, _) in zip(boxes.classes, prediction.classes)}
        pixels = draw_boxes(pixels, boxes._replace(corners=corners), names)
    picture = "" if pixels is None else picture_html(pixels, _attention(prediction))
    path, name = html.escape(os.fspath(prediction.path)), html.escape(prediction.path.name)
    return (
        f"<figure{attributes}>\n{picture}"
        f'<figcaption><b title="{path}">{name}</b>\n{text}</figcaption>\n</figure>\n'
    )


def _attention(prediction):
    """Returns a dark layer over the part that the model sees, transparent where it attends."""
    if prediction.attention is None:
        return ""
    share = prediction.attention / prediction.attention.max()
    layer = np.zeros((*share.shape, 2), "uint8")  # gray and opacity
    layer[..., 1] = np.round(255 * 0.8 * (1 - share))
    names = ("top", "left", "height", "width")
    place = ";".join(f"{name}:{100 * x:.4g}%" for name, x in zip(names, prediction.seen))
    source = data_url(layer, "png")
    return f'<img class="attention" style="{place}" src="{source}" alt="attention">'
