"""`vit-keras predict` predicts classes, masks or boxes, and writes a table, a file or pictures."""

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator

from vit_keras.commands import options as shared
from vit_keras.commands.options import add_tile_options, predict_to_folder
from vit_keras.support import extras
from vit_keras.support.command_line import UsageError

EXAMPLES = (
    "vit-keras predict runs/digits cat.jpg dog.png",
    "vit-keras predict model.tflite photos 'more/**/*.jpg' --out labels.csv",
    "vit-keras predict runs/digits photos --out page.html --attention    # pictures and labels",
    "vit-keras predict runs/digits photos --top 1 --threshold 0.8 --out sure.parquet",
    "vit-keras predict runs/photos new --coverage 0.9 --abstain 0.05    # when it is unsure",
    "vit-keras predict runs/segment photos --out predicted    # masks/ and overlays/",
    "vit-keras predict runs/boxes photos --out boxes.json --tiles    # COCO's; --out FOLDER draws",
    "find photos -newer last | vit-keras predict runs/digits - --format jsonl",
)

TOP = 3  # classes for each picture
UNUSED = {  # options that a model of places cannot follow
    "masks": ("top", "threshold", "coverage", "abstain", "attention"),
    "boxes": ("top", "coverage", "abstain", "attention"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add, flag = shared.adders(parser)
    add("model", "MODEL", "run, checkpoint of any format, or exported file")
    pictures = "files, folders, patterns, or - for a list of paths on standard input"
    add("pictures", "PICTURE", pictures, nargs="+")
    add("--top", "N", f"most classes for each picture ({TOP})", shared.count)
    add("--threshold", "P", "leave out what is less probable (0, or each label's own)", float)
    add("--coverage", "RATE", "add all that the true answer may be, at a rate such as 0.9", float)
    abstain = "answer 'none of these' at the cost of a share of known pictures, such as 0.05"
    add("--abstain", "SHARE", abstain, float)
    out = ".csv, .jsonl, .parquet, .html or COCO's .json file, or a folder of masks or boxes"
    shared.add_out(parser, out)
    shared.add_rows(parser, (shared.COCO,))
    flag("--attention", "show on the page where the classifier looks")
    shared.add_image_size(parser)
    shared.add_labels(parser)
    shared.add_views(parser)
    add_tile_options(parser)


def run(options: argparse.Namespace) -> None:
    from vit_keras import data, evaluation

    form = _check(options)
    predictor, _ = evaluation.open_predictor(
        options.model, shared.image_size(options), labels=options.labels
    )
    if options.tta:
        predictor = evaluation.with_views(predictor, options.tta)
    _check_output(options, form, predictor.task.kind)
    paths = data.expand_pictures(shared.arguments(options.pictures))
    if predictor.task.kind == "boxes":
        _predict_boxes(predictor, paths, options, form)
        return
    if predictor.task.kind == "masks":
        from vit_keras.support.files import claimed_output

        with claimed_output(options.out, "a prediction of masks"):
            count = predict_to_folder(predictor, paths, options, options.out)
        _report_unreadable(count, len(paths))
        print(f"written: {options.out}")
        return
    top = options.top or TOP
    predictions = evaluation.predict_files(
        predictor,
        paths,
        batch=options.batch,
        top=top,
        threshold=options.threshold,
        coverage=options.coverage,
        abstain=options.abstain,
        on_error="skip" if options.skip_unreadable else "raise",
        picture_px=evaluation.PICTURE_PX if form == "html" else None,
        attention=options.attention,
    )
    unreadable: list[str] = []
    with shared.output(options.out) as file, contextlib.closing(predictions):
        evaluation.write_file_predictions(
            _watched(predictions, len(paths), unreadable, file),
            file,
            form,
            top=top,
            coverage=options.coverage,
            title=f"Predictions of {options.model}",
            numbers=_numbers(predictor),
        )
    _report_unreadable(len(unreadable), len(paths))


def _predict_boxes(predictor, paths, options, form):
    """Writes the boxes of pictures to a file or standard output, or pictures with boxes drawn."""
    from vit_keras import evaluation
    from vit_keras.support.files import claimed_output

    predictions = evaluation.predict_box_files(
        predictor,
        paths,
        shared.tile_options(options, options.batch),
        threshold=options.threshold,
        on_error="skip" if options.skip_unreadable else "raise",
    )
    names = predictor.class_names or [*map(str, range(predictor.num_classes))]
    unreadable: list[str] = []
    if form:
        with shared.output(options.out) as file, contextlib.closing(predictions):
            rows = _watched(predictions, len(paths), unreadable, file)
            title = f"Predictions of {options.model}"
            evaluation.write_box_predictions(rows, file, form, names, title)
    else:
        with claimed_output(options.out, "a prediction of boxes"):
            rows = _watched(predictions, len(paths), unreadable, None)
            shared.draw_to_folder(rows, paths, names, options.out)
        print(f"written: {options.out}")
    _report_unreadable(len(unreadable), len(paths))


def _needs_models(options):
    """Whether the model needs Keras and a backend; exported files need neither."""
    from vit_keras.runtimes import format_of

    return not format_of(options.model)


def _report_unreadable(count, total):
    if count:
        print(f"{count} of {total} pictures could not be read", file=sys.stderr)


def _numbers(predictor):
    """Returns the names of the numbers that a model predicts; empty for classes and labels."""
    names = predictor.class_names or tuple(map(str, range(predictor.num_classes)))
    return names if predictor.task.kind == "numbers" else ()


def _check(options: argparse.Namespace) -> str:
    """Checks the options, and returns the format."""
    form = shared.format_of(options, may_be_folder=True)
    if options.threshold is not None and not 0 <= options.threshold <= 1:
        raise UsageError(
            f"--threshold must lie between 0 and 1. Received: --threshold {options.threshold}"
        )
    if options.attention and form != "html":
        raise UsageError(f"--attention is drawn on a page. Received: {form}; give --out page.html")
    return form


def _check_output(options, form, kind):
    """Checks that masks go to a folder, boxes anywhere, and others to rows or a page."""
    for name in UNUSED.get(kind, ()):
        if getattr(options, name) not in (None, False):
            raise UsageError(f"A model of {kind} takes no --{name}. Leave it out")
    if kind == "boxes":
        return
    if kind != "masks" and form in ("", shared.COCO):
        shared.format_of(options)
        raise UsageError(f"--format {form} is for models of boxes. Received: a model of {kind}")
    if kind == "masks" and (form or not options.out):
        raise UsageError(
            "A model of masks writes pictures, so --out must be a folder, without --format. "
            f"Received: --out {options.out}"
        )


def _watched(predictions: Iterable, total: int, unreadable: list[str], file) -> Iterator:
    """Passes the predictions on, collects unreadable pictures, and shows progress.

    Progress is a bar on standard error, if that is a terminal that does not also show the rows.
    """
    tqdm = extras.require("tqdm", extra="data", purpose="The progress bar").tqdm
    rows_are_shown = isinstance(file, shared.StandardOutput) and sys.stdout.isatty()
    hidden = rows_are_shown or not sys.stderr.isatty()
    for prediction in tqdm(predictions, total=total, unit=" pictures", disable=hidden):
        if prediction.error:
            unreadable.append(str(prediction.path))
        yield prediction


COMMAND = shared.Command(
    "Predict the classes of pictures.", EXAMPLES, add_options, run, needs_models=_needs_models
)
