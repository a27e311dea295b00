"""`vit-keras check` reports whether a data set can be trained on, and what may spoil results."""

import argparse
import os
import pathlib

from vit_keras.commands import options as shared
from vit_keras.support.command_line import UsageError, visible, visible_json
from vit_keras.support.tasks import KINDS

EXAMPLES = (
    "vit-keras check photos                                   # as folder:photos",
    "vit-keras check folder:photos --format json --quick      # counts alone",
    "vit-keras check folder:photos --model dinov2-small --out page.html    # wrong labels",
    "vit-keras check folder:photos --config finetune/pets --out sheet.png --out report.json",
)
FORMATS = ("text", "json")
SHOWN = 40  # classes to print counts of


def add_options(parser: argparse.ArgumentParser) -> None:
    add, flag = shared.adders(parser)
    names = "folder of pictures, CSV or Parquet table, or a name as in `vit-keras train --dataset`"
    add("dataset", "DATASET", names)
    recipe = "recipe or YAML file of the run that is planned; its fields are options too"
    add("--config", "RECIPE", recipe, action="append", default=[])
    add("--model", "MODEL", "run or checkpoint whose features tell which labels look wrong")
    out = "report.json; sheet.png, the first training images; page.html, wrong labels; repeatable"
    add("--out", "FILE", out, action="append", default=[])
    add("--format", "NAME", "text or json (text)", choices=FORMATS, default="text")
    bits = "of near-duplicates, 0 to 16 (4)"
    add("--distance", "BITS", bits, int, choices=range(17), default=4)
    flag("--quick", "count pictures, but do not open them")


def run(options: argparse.Namespace) -> None:
    from vit_keras import data, experiments
    from vit_keras.support import machine
    from vit_keras.support.files import replacing, write_text

    out = {pathlib.Path(path).suffix.lower(): path for path in options.out}
    _check_options(options, out)
    machine.prepare()
    review, options.has_page = data.Review(), ".html" in out
    kind, _, path = options.run.dataset.partition(":")
    others = data.holds_masks, data.holds_boxes
    if kind == "folder" and os.path.isdir(path) and not any(holds(path) for holds in others):
        layout = data.read_layout(path)
        data.review_files(review, layout)
        review.problems += layout.problems
    issues = [] if review.problems else _look(options, review)
    verdict = {"problems": review.problems, "warnings": review.warnings}
    report = {"dataset": options.run.dataset, **verdict, **review.facts}
    heads = {name: [text.splitlines()[0] for text in texts] for name, texts in verdict.items()}
    text = visible_json(report | heads, indent=1)  # details come in addition to the heads
    print(text if options.format == "json" else visible("\n".join(_lines(report))))
    for path in out.values():
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    if ".json" in out:
        write_text(out[".json"], text)
    if ".html" in out and issues:
        from vit_keras import evaluation

        with replacing(out[".html"]) as temporary, open(temporary, "wb") as file:
            title = f"Labels of {options.run.dataset} that look wrong"
            evaluation.write_file_predictions(issues, file, "html", top=2, title=title)
        print(f"written: {out['.html']}")
    if review.problems:
        many = "a problem" if len(review.problems) == 1 else f"{len(review.problems)} problems"
        raise ValueError(f"{options.run.dataset!r} cannot be trained on: it has {many}; see above")
    if ".png" in out:
        images, targets, names, task = experiments.first_training_images(options.run)
        boxes = targets if task.kind == "boxes" else None
        captions = data.captions_of(targets, names, task)
        sheet = data.draw_contact_sheet(images, captions, boxes, names)
        with replacing(out[".png"]) as temporary:
            sheet.save(temporary, format="png")
        print(f"written: {out['.png']}")


def _check_options(options, out):
    if out.keys() - {".png", ".json", ".html"}:
        raise UsageError(f"`--out` must end in .png, .json or .html. Received: {options.out}")
    if ".html" in out and options.model is None:
        raise UsageError("`--out` ending in .html shows what `--model` contradicts; give it")


def _look(options, review):
    """Adds the findings from the splits and their pictures; returns wrong labels for a page."""
    from vit_keras import data
    from vit_keras.support import extras

    run, splits = options.run, {}
    try:
        dataset = data.load(run.dataset, run.model.channels or 3, run.data, run.task)
        splits = dataset.splits
        splits = data.splits_of_run(dataset, run.data)
    except (ValueError, OSError) as error:
        review.problems.append(str(error))
    if not splits:
        return []
    data.review_labels(review, dataset, splits)
    if dataset.kind == "numbers":
        review.facts["classes"] = list(dataset.class_names)
    else:
        data.review_counts(review, data.count_classes(dataset, splits))
    if options.quick:
        return []
    config = data.complete_levels(run.data, dataset)
    review.facts["white"] = config.levels
    splits = {name: split.read_as(config.white) for name, split in splits.items()}
    tqdm = extras.require("tqdm", extra="data", purpose="The progress bar").tqdm
    bar = {"total": sum(map(len, splits.values())), "unit": " pictures", "leave": False}
    pictures = list(tqdm(data.survey_pictures(dataset, splits), disable=None, **bar))
    data.review_pictures(review, pictures, stop=run.data.on_corrupt == "stop")
    data.review_sides(review, splits, pictures)
    if run.model.weights and run.model.channels not in (None, 1, 3):
        review.warnings.append(
            "weights of RGB have 3 channels: their patch kernels are repeated in turn, and "
            f"scaled, for the {run.model.channels} of model.channels"
        )
    data.review_pairs(review, data.find_pairs(pictures, options.distance))
    return [] if options.model is None else _label_issues(options, dataset, splits, review)


def _label_issues(options, dataset, splits, review):
    """Adds the labels that a model's features contradict; returns them with their pictures."""
    import numpy as np

    from vit_keras import data, evaluation

    predictor, trained = evaluation.open_predictor(options.model)
    if predictor.model is None or dataset.kind != "classes":
        raise UsageError(
            "`--model` must be a run or a checkpoint, and the labels classes. Received: "
            f"{options.model!r} for {dataset.kind}"
        )
    truncated = evaluation.early_features if trained else evaluation.feature_model
    model = truncated(predictor.model)
    places = [(name, split, i) for name, split in splits.items() for i in range(len(split))]
    extracted = [
        evaluation.extract(model, predictor.batches(split, options.run.batch_eval))
        for split in splits.values()
    ]
    features, labels = map(np.concatenate, zip(*extracted))
    shares = evaluation.cross_validated_probabilities(features, labels, options.run.seed)
    names, issues = dataset.class_names, evaluation.find_label_issues(shares, labels)
    review.facts["label_issues"], rows = [], []
    for issue in issues:
        (split_name, split, i), (likely, low) = places[issue.number], issue.probabilities
        name = split.name(i) if split.name else f"{split_name}[{i}]"
        label, suggested = names[issue.label], names[issue.suggested]
        facts = {"picture": name, "split": split_name, "label": label, "suggested": suggested}
        review.facts["label_issues"].append({**facts, "probabilities": [likely, low]})
        if options.has_page:
            picture = data.thumbnail(split.read(i), evaluation.PICTURE_PX)
            shown = ((suggested, likely), (f"{label} (its label)", low))
            rows.append(evaluation.FilePrediction(pathlib.Path(name), shown, picture=picture))
    lines = [f"{r['picture']} is labeled {r['label']}" for r in review.facts["label_issues"]]
    review.warn(lines, f"labels that look wrong ({len(lines):,})", ". Look at the pictures")
    return rows


def _lines(report):
    """Yields the lines of a report as text."""
    yield report["dataset"]
    kind = KINDS[report.get("kind", "classes")]
    if "pictures" in report:
        yield from _table(report["pictures"], kind, report["images"])
    for split, numbers in report.get("numbers", {}).items():
        for name, row in numbers.items():
            text = f"{_spread(row)} (least / median / most)" if row["known"] else "unknown"
            yield f"{split} {name}: {text}, known of {row['known']:,}"
    yield from report.get("notes", ())
    if ratio := report.get("imbalance"):
        times = f"the largest {kind.one} has {ratio:.1f} times the pictures of the smallest"
        yield f"balance: {f'the {kind.several} have equal sizes' if ratio == 1 else times}"
    if "width" in report:
        yield f"width: {_spread(report['width'])} pixels (least / median / most)"
        yield f"height: {_spread(report['height'])} pixels"
        yield f"width / height: {_spread(report['aspect'])}"
        low, high = (f"{level:g}" for level in report["levels"])
        yield f"levels: {low} to {high}, of which data.levels makes {report['white']} white"
        yield "kinds: " + ", ".join(f"{n:,} {name}" for name, n in report["kinds"].items())
    if others := report.get("not_pictures"):
        counts = ", ".join(f"{n:,} {suffix}" for suffix, n in others.items())
        yield f"files that are not pictures: {counts}"
    yield from (f"warning: {text}" for text in report["warnings"])
    yield from (f"problem: {text}" for text in report["problems"])
    if not report["problems"]:
        hint = "; see the warnings above" if report["warnings"] else ""
        yield f"It can be trained on{hint}."


def _spread(row):
    return " / ".join(f"{row[name]:g}" for name in ("min", "median", "max"))


def _table(counts, kind, images):
    """Formats the number of pictures of each class, with a column for each split."""
    classes = list(next(iter(counts.values())))
    shown = classes if len(classes) <= SHOWN else [*classes[: SHOWN - 1], "..."]
    rows = [[name, *(of.get(name, "") for of in counts.values())] for name in shown]
    rows = [["", *counts], *rows]
    word = kind.one if len(classes) == 1 else kind.several
    rows.append([f"{len(classes)} {word}", *images.values()])
    texts = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    first, *widths = (max(map(len, column)) for column in zip(*texts))
    for name, *cells in texts:
        yield f"{name:<{first}}" + "".join(f"  {c:>{max(w, 8)}}" for c, w in zip(cells, widths))


COMMAND = shared.RunCommand(
    "Say whether a data set can be trained on, and what may spoil the result.",
    EXAMPLES,
    add_options,
    run,
    note=shared.FIELDS,
)
