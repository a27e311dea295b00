"""Report whether a data set can be trained on, and what may spoil the result.

All other options are fields of the run, as in `vit-keras train`.

examples:
  vit-keras check photos                                   # the same as folder:photos
  vit-keras check folder:photos --format json --quick      # only counts
  vit-keras check folder:photos --model dinov2-small --out page.html    # likely wrong labels
  vit-keras check folder:photos --config finetune/pets --out sheet.png --out report.json
"""

import os
import pathlib

import numpy as np

from vit_keras import data, evaluation, experiments
from vit_keras.commands import options as shared
from vit_keras.support.command_line import UsageError, aligned, visible, visible_json
from vit_keras.support.files import replacing, write_text
from vit_keras.support.tasks import KINDS

# The facts to print, and their labels.
PRINTED = {
    "imbalance": "size of the largest class / smallest class",
    "width": "width in pixels",
    "height": "height in pixels",
    "aspect": "width / height",
    "levels": "levels",
    "white": "level of white",
    "kinds": "kinds",
    "not_pictures": "files that are not pictures",
}
SHOWN = 40  # classes to print counts of
SIDE = 112  # pixels on the sheet: smaller images are enlarged by a whole factor


parse = shared.parse_with_fields


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    names = "folder of pictures, CSV or Parquet table, or a name as in `vit-keras train --dataset`"
    add("dataset", "DATASET", names)
    recipe = "recipe or YAML file of the run that is planned; its fields are options too"
    add("--config", "RECIPE", recipe, action="append", default=[])
    one, quick = shared.adders(parser.add_mutually_exclusive_group())
    one("--model", "MODEL", "run or checkpoint whose features tell which labels look wrong")
    out = ".json report, .png sheet of training images, or .html page of wrong labels; repeatable"
    add("--out", "FILE", out, shared.ending(".json", ".png", ".html"), action="append", default=[])
    add("--format", "NAME", "format of the report", default="text", names=("text", "json"))
    bits = "largest difference between near-duplicates, 0 to 16"
    add("--distance", "BITS", bits, int, 4, choices=range(17))
    quick("--quick", "count pictures without opening them")


def run(options: shared.Options) -> None:
    out = {pathlib.Path(path).suffix.lower(): path for path in options.out}
    if len(out) < len(options.out):
        raise UsageError(f"`--out` takes each kind of file at most once. Received: {options.out}")
    if ".html" in out and options.model is None:
        raise UsageError("A .html page shows the labels that `--model` contradicts. Give --model")
    review = data.Review()
    kind, _, path = options.run.dataset.partition(":")
    is_folder, known = kind == "folder" and os.path.isdir(path), options.run.data
    if is_folder and not (data.holds_masks(path) or data.holds_boxes(path)):
        layout = data.read_layout(path, trains="train" in known.train_split)
        review.add_files(layout, options.run.learns_labels and not known.label_pattern)
    if not review.problems:
        _look(options, review, out.get(".html"))
    verdict = {"problems": review.problems, "warnings": review.warnings}
    report = {"dataset": options.run.dataset, **verdict, **review.facts}
    heads = {name: [text.splitlines()[0] for text in texts] for name, texts in verdict.items()}
    text = visible_json(report | heads, indent=1)  # details come in addition to the heads
    print(text if options.format == "json" else visible("\n".join(_lines(report))))
    if ".json" in out:
        write_text(out[".json"], text)
    if review.problems:
        many = "a problem" if len(review.problems) == 1 else f"{len(review.problems)} problems"
        raise ValueError(f"{options.run.dataset!r} cannot be trained on: it has {many}; see above")
    if ".png" in out:
        _draw_sheet(options.run, out[".png"])
        print(f"written: {out['.png']}")


def _draw_sheet(config, path):
    """Draws the first training images, with their boxes."""
    from vit_keras.data.depth import viewable
    from vit_keras.support.box_metrics import boxes_of
    from vit_keras.support.figures import picture_sheet

    images, targets, names, task = experiments.first_training_images(config)
    scale = max(1, -(-SIDE // min(images.shape[1:3])))
    large = viewable(images).repeat(scale, axis=1).repeat(scale, axis=2)
    size, shown = large.shape[2:0:-1], [*large]
    if task.kind == "boxes":
        shown = [evaluation.draw_boxes(x, boxes_of(y, size), names) for x, y in zip(large, targets)]
    picture_sheet(shown, data.captions_of(targets, names, task), path)


def _look(options, review, page):
    """Adds the findings from the splits and their pictures; shows suspect labels on a page."""
    run, splits = options.run, {}
    try:
        loaded = run.model.channels or 3, run.data, run.task, run.learns_labels
        dataset = data.load(run.dataset, *loaded)
        splits = dataset.splits
        splits = data.splits_of_run(dataset, run.data)
    except (ValueError, OSError) as error:
        review.problems.append(str(error))
    if not splits:
        return
    review.add_labels(dataset, splits)
    if options.quick:
        return
    config = data.complete_levels(run.data, dataset)
    review.facts["white"] = config.levels
    splits = {name: split.read_as(config.white) for name, split in splits.items()}
    seen, total = data.survey_pictures(dataset, splits), sum(map(len, splits.values()))
    pictures = list(shared.progress(seen, total=total, leave=False))
    review.add_pictures(pictures, splits, stop=run.data.on_corrupt == "stop")
    review.add_pairs(data.find_pairs(pictures, options.distance))
    if options.model is not None:
        _add_label_issues(options, dataset, splits, review, page)


def _add_label_issues(options, dataset, splits, review, page):
    """Adds the labels that a model's features contradict, and writes them to a page."""
    predictor, trained = evaluation.open_predictor(options.model)
    model, names = predictor.keras_model("--model"), dataset.class_names
    if dataset.kind != "classes" or not names:
        received = dataset.kind if names else "no labels"
        raise UsageError(f"`--model` needs labels that are classes. Received: {received}")
    model = (evaluation.early_features if trained else evaluation.feature_model)(model)
    places = [(name, split, i) for name, split in splits.items() for i in range(len(split))]
    batches = (predictor.batches(split, options.run.batch_eval) for split in splits.values())
    features, labels = map(np.concatenate, zip(*(evaluation.predict(model, x) for x in batches)))
    shares = evaluation.cross_validated_probabilities(features, labels, options.run.seed)
    review.facts["label_issues"] = issues = list[dict]()
    rows = []
    for issue in evaluation.find_label_issues(shares, labels):
        (split_name, split, i), (likely, low) = places[issue.number], issue.probabilities
        label, suggested = names[issue.label], names[issue.suggested]
        name = split.name(split.replacement(i))
        facts = {"picture": name, "split": split_name, "label": label, "suggested": suggested}
        issues.append({**facts, "probabilities": [likely, low]})
        if page:
            picture = data.thumbnail(split.read(i), evaluation.PICTURE_PX)
            shown = ((suggested, likely), (f"{label} (its label)", low))
            rows.append(evaluation.FilePrediction(pathlib.Path(name), shown, picture=picture))
    lines = [f"{issue['picture']} is labeled {issue['label']}" for issue in issues]
    review.warn(lines, f"labels that look wrong ({len(lines):,})", ". Look at the pictures")
    if page:
        with replacing(page) as temporary, open(temporary, "wb") as file:
            title = f"Labels of {options.run.dataset} that look wrong"
            evaluation.write_file_predictions(rows, file, "html", top=2, title=title)
        review.facts["page"] = page


def _lines(report):
    """Yields the lines of a report as text."""
    yield report["dataset"]
    if "pictures" in report:
        yield from _table(report["pictures"], KINDS[report["kind"]], report["images"])
    for split, numbers in report.get("numbers", {}).items():
        yield from (f"{split} {name}: {_text(row)}" for name, row in numbers.items())
    yield from report.get("notes", ())
    facts = ((text, report.get(name)) for name, text in PRINTED.items())
    yield from (f"{text}: {_text(fact)}" for text, fact in facts if fact)
    for one in ("warning", "problem"):
        yield from (f"{one}: {text}" for text in report[f"{one}s"])
    if not report["problems"]:
        hint = "; see the warnings above" if report["warnings"] else ""
        yield f"It can be trained on{hint}."
    if "page" in report:
        yield f"written: {report['page']}"


def _text(fact) -> str:
    if isinstance(fact, dict):
        return ", ".join(f"{name} {_text(value)}" for name, value in fact.items())
    if isinstance(fact, list):
        return " to ".join(map(_text, fact))
    return f"{fact:g}" if isinstance(fact, float) else str(fact)


def _table(counts, kind, images):
    """Formats the number of pictures of each class, with a column for each split."""
    classes = list(next(iter(counts.values())))
    shown = classes if len(classes) <= SHOWN else [*classes[: SHOWN - 1], "..."]
    rows = [["", *counts], *([name, *(n.get(name, "") for n in counts.values())] for name in shown)]
    word = kind.one if len(classes) == 1 else kind.several
    rows.append([f"{len(classes)} {word}", *images.values()])
    texts = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    return aligned(texts)
