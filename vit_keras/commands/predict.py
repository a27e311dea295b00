"""Predict the classes, numbers, masks or boxes of pictures.

examples:
  vit-keras predict runs/digits cat.jpg dog.png
  vit-keras predict model.tflite photos 'more/**/*.jpg' --out labels.csv
  vit-keras predict runs/digits photos --out page.html --attention    # pictures and labels
  vit-keras predict runs/digits photos --top 1 --threshold 0.8 --out sure.parquet
  vit-keras predict runs/photos new --coverage 0.9 --abstain 0.05    # for unsure answers
  vit-keras predict runs/segment photos --out predicted    # masks/ and overlays/
  vit-keras predict runs/boxes photos --out boxes.json --tiles    # or FOLDER for drawings
  find photos -newer last | vit-keras predict runs/digits - --format jsonl
"""

import itertools
import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence

from vit_keras import data, evaluation
from vit_keras.commands import options as shared
from vit_keras.support.command_line import UsageError
from vit_keras.support.files import claimed_output

TOP = 3  # classes for each picture
ALL = (*shared.FORMATS, shared.COCO, "")  # "" is a folder
FORMS = {"masks": ("",), "boxes": ALL}  # of answers, by kind of model; FORMATS for other kinds


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("model", "MODEL", "run, checkpoint of any format, or exported file")
    pictures = "files, folders, patterns, or - for a list of paths on standard input"
    add("pictures", "PICTURE", pictures, nargs="+")
    add("--top", "N", f"number of classes per picture ({TOP})", shared.count)
    add("--threshold", "P", "leave out less probable answers (0, or each label's own)", float)
    add("--coverage", "RATE", "add every answer that may be true, at a rate such as 0.9", float)
    abstain = "answer 'none of these' at the cost of a share of known pictures, such as 0.05"
    add("--abstain", "SHARE", abstain, float)
    out = ".csv, .jsonl, .parquet, .html or COCO's .json file, or a folder of masks or boxes"
    add("--out", "PATH", out)
    shared.add_rows(add, flag, (shared.COCO,))
    flag("--attention", "show where the classifier looks, on an HTML page")
    shared.add_predictor(add)
    shared.add_tile_options(parser)


def run(options: shared.Options) -> None:
    form = shared.format_of(options, ALL)
    if options.attention and form != "html":
        raise UsageError(f"--attention needs an HTML page. Received: {form}. Give --out page.html")
    tiles = shared.tile_options(options, options.batch)
    predictor, _ = shared.predictor_of(options, options.model)
    kind, names = predictor.task.kind, predictor.names
    _check_output(options, form, kind)
    paths, errors = data.expand_pictures(shared.arguments(options.pictures)), list[str]()
    shown = {"top": options.top or TOP, "coverage": options.coverage}
    predictions = evaluation.predict_files(
        predictor,
        paths,
        batch=options.batch,
        threshold=options.threshold,
        abstain=options.abstain,
        on_error=shared.on_error(options),
        picture_px=evaluation.PICTURE_PX if form == "html" else None,
        attention=options.attention,
        tiles=tiles,
        **shown,
    )
    rows = _watched(predictions, len(paths), errors, options.out)
    if form:
        details = {"names": names, "title": f"Predictions of {options.model}", **shown}
        with shared.output(options.out) as file:
            evaluation.write_file_predictions(rows, file, form, kind, **details)
    else:
        with claimed_output(options.out, f"a prediction of {kind}"):
            for name, row in zip(names_in(paths), rows):
                _write_picture(options.out, name, row, names)
        if len(errors) < len(paths):
            print(f"written: {options.out}")
    if errors:
        print(f"{len(errors)} of {len(paths)} pictures could not be read", file=sys.stderr)


def _write_picture(out, name, row, names):
    """Writes a mask and its overlay, or a picture with its boxes, to a folder."""
    from vit_keras.evaluation.mask_prediction import save_png

    if row.error:
        print(row.error, file=sys.stderr)
    elif row.mask is not None:
        evaluation.write_mask(out, name, row.picture, row.mask)
    else:
        save_png(evaluation.draw_boxes(row.picture, row.boxes, names), pathlib.Path(out, name))


def needs_models(options: shared.Options) -> bool:
    """Whether the model needs Keras and a backend; exported files need neither."""
    from vit_keras.runtimes import format_of

    return not format_of(options.model)


def _check_output(options, form, kind):
    """Refuses options and forms of output that a kind of model does not support."""
    from vit_keras.evaluation.file_predictions import UNUSED

    forms = FORMS.get(kind, shared.FORMATS)
    for name in ("top", *UNUSED[kind]) if kind in UNUSED else ():
        if getattr(options, name) not in (None, False):
            raise UsageError(f"--{name} does not apply to a model of {kind}. Leave it out")
    if form not in forms:
        written = ", ".join(name or "a folder of pictures" for name in forms)
        received = f"--out {options.out}, --format {options.format}"
        raise UsageError(f"A model of {kind} writes {written}. Received: {received}")


def _watched(predictions: Iterable, total: int, errors: list[str], out) -> Iterator:
    """Passes the predictions on, collects their errors, and shows progress.

    The progress bar appears if standard error is a terminal and does not also show the rows.
    """
    hidden = (out is None and sys.stdout.isatty()) or None  # None: without a terminal
    for prediction in shared.progress(predictions, total=total, disable=hidden):
        if prediction.error:
            errors.append(prediction.error)
        yield prediction


def names_in(paths: Sequence[pathlib.Path]) -> Iterator[str]:
    """Yields a file name for each picture: its own stem, plus a number if others have the same."""
    used = set[str]()
    for stem in (pathlib.Path(path).stem for path in paths):
        numbered = (f"{stem}_{number}" for number in itertools.count(2))
        used.add(name := next(x for x in itertools.chain([stem], numbered) if x not in used))
        yield f"{name}.png"
