"""`vit-keras predict`: the classes of pictures, as a table, CSV, JSON lines or drawn pictures."""

import argparse
import contextlib
import csv
import json
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from vit_keras.commands import options as shared
from vit_keras.config import UsageError

FORMATS = ("table", "csv", "jsonl")
EXAMPLES = (
    "vit-keras predict runs/digits cat.jpg dog.png",
    "vit-keras predict model.tflite photos 'more/**/*.jpg' --out labels.csv",
    "vit-keras predict runs/digits photos --draw labeled      # pictures with their labels",
    "find photos -newer last | vit-keras predict runs/digits - --format jsonl",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", help="run, checkpoint of any format, or exported file")
    pictures = "files, folders, patterns, or - for a list of paths on standard input"
    add("pictures", nargs="+", metavar="PICTURE", help=pictures)
    add("--top", type=int, default=3, metavar="N", help="classes for each picture (3)")
    add("--format", choices=FORMATS, metavar="NAME", help="table, csv or jsonl (by --out, table)")
    shared.add_out(parser, "file to write instead of standard output")
    add("--draw", metavar="DIR", help="also write the pictures with their labels into this folder")
    shared.add_image_size(parser)
    add("--batch_eval", type=int, default=32, metavar="N", help="pictures per step (32)")
    skip = "report an unreadable picture in its row instead of stopping"
    add("--skip_unreadable", action="store_true", help=skip)


def run(options: argparse.Namespace) -> None:
    from vit_keras import data, evaluation, machine

    form = _format(options)
    machine.prepare()
    predictor, _ = evaluation.open_predictor(options.model, shared.image_size(options))
    paths = data.expand_pictures(_arguments(options.pictures))
    predictions = evaluation.predict_files(
        predictor,
        paths,
        batch=options.batch_eval,
        top=options.top,
        on_error="skip" if options.skip_unreadable else "raise",
    )
    if options.draw:
        predictions = _drawn(predictions, pathlib.Path(options.draw))
    with _output(options.out) as file:
        WRITERS[form](predictions, options.top, file)


def _format(options):
    suffix = pathlib.Path(options.out).suffix[1:] if options.out else "table"
    form = options.format or suffix
    if form not in FORMATS:
        raise UsageError(
            f"`--out` must end in .csv or .jsonl, or `--format` be given. Received: {options.out}"
        )
    return form


def _arguments(arguments: list[str]) -> Iterator[str]:
    for argument in arguments:
        if argument == "-":
            yield from filter(None, (line.rstrip("\n") for line in sys.stdin))
        else:
            yield argument


@contextlib.contextmanager
def _output(path):
    """Standard output, or a file that appears once it is complete."""
    from vit_keras.files import replacing

    if path is None:
        yield sys.stdout
        return
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        yield file
    print(f"written: {path}")


def _write_table(predictions: Iterable, top: int, file: Any) -> None:
    for prediction in predictions:
        classes = ", ".join(
            f"{name} {100 * probability:.1f}%" for name, probability in prediction.classes
        )
        print(f"{prediction.path}: {prediction.error or classes}", file=file)


def _write_csv(predictions: Iterable, top: int, file: Any) -> None:
    writer = csv.writer(file, lineterminator="\n")
    columns = [
        f"{field}_{rank}" for rank in range(1, top + 1) for field in ("class", "probability")
    ]
    writer.writerow(["path", *columns, "error"])
    for prediction in predictions:
        cells = [
            cell
            for name, probability in prediction.classes
            for cell in (name, f"{probability:.6g}")
        ]
        cells += [""] * (len(columns) - len(cells))  # fewer classes than `top`, or an error
        writer.writerow([prediction.path, *cells, prediction.error or ""])


def _write_jsonl(predictions: Iterable, top: int, file: Any) -> None:
    for prediction in predictions:
        classes = [
            {"name": name, "probability": probability} for name, probability in prediction.classes
        ]
        row = {"path": str(prediction.path), "classes": classes, "error": prediction.error}
        print(json.dumps(row, ensure_ascii=False), file=file)


WRITERS = {"table": _write_table, "csv": _write_csv, "jsonl": _write_jsonl}


def _drawn(predictions, folder):
    """Passes the predictions on, and writes each picture with its labels below it."""
    from vit_keras.data import draw_caption
    from vit_keras.files import replacing

    folder.mkdir(parents=True, exist_ok=True)
    for number, prediction in enumerate(predictions, 1):
        if not prediction.error:
            lines = [
                f"{name}  {100 * probability:.1f} %" for name, probability in prediction.classes
            ]
            with replacing(folder / f"{number:05}-{prediction.path.stem}.png") as temporary:
                draw_caption(prediction.path, lines).save(temporary, format="png")
        yield prediction


COMMAND = shared.Command("Predict the classes of pictures.", EXAMPLES, add_options, run)
