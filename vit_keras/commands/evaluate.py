"""Evaluate runs, checkpoints or exported files on a data set.

examples:
  vit-keras evaluate runs/digits
  vit-keras evaluate model.tflite --dataset folder:photos --out report
  vit-keras evaluate runs/a runs/b runs/c                  # and their mean and deviation
  vit-keras evaluate runs/digits --fewshot 1 5 10
  vit-keras evaluate runs/digits --knn 10 20
  vit-keras evaluate runs/segment --tiles --overlap 0.5    # masks at full resolution
  vit-keras evaluate runs/boxes                            # COCO's AP, and the worst pictures
"""

import dataclasses
import json
import pathlib

from vit_keras import data, evaluation
from vit_keras.commands import options as shared
from vit_keras.support import extras
from vit_keras.support.command_line import UsageError
from vit_keras.support.files import claimed_output, write_text


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("models", "MODEL", "run, checkpoint of any format, or exported file", nargs="+")
    shared.add_dataset(add)
    add("--split", None, "split to evaluate on, or a slice of it (the held-out one)")
    shared.add_predictor(add)
    add("--batch_eval", "N", "images per step", shared.count, 256)
    add("--out", "PATH", "folder of the report (the run's)", shared.folder)
    add("--predictions", "FILE", "also write the predictions, as .csv or .parquet")
    add("--real", "FILE", "labels of ImageNet-ReaL, real.json")
    flag("--ignore_class_names", "compare classes by order alone")
    shared.add_tile_options(parser)
    few = parser.add_argument_group("probes of the features instead of the accuracy")
    add, _ = shared.adders(few.add_mutually_exclusive_group())
    add("--fewshot", "SHOTS", "images of each class, such as 1 5 10", shared.count, nargs="+")
    add("--knn", "K", "nearest neighbors that vote, such as 10 20", shared.count, nargs="+")
    add, _ = shared.adders(few)
    add("--l2", None, "L2 penalties of few-shot probes", float, [1024.0], nargs="+")
    add("--seeds", "N", "draws of the shots", shared.count, 3)
    add("--representation", "LAYER", "layer that gives the features (the head's input)")


def run(options: shared.Options) -> None:
    probe = "fewshot" if options.fewshot else "knn" if options.knn else None
    if not probe:  # before the evaluation, which may take a long time
        extras.check("matplotlib")
    for option in ("predictions", "real", "tiles", "ignore_class_names"):
        if probe and getattr(options, option):
            raise UsageError(f"--{option} does not apply to --{probe}. Leave out one of them")
    if options.predictions and len(options.models) > 1:
        raise UsageError(f"--predictions takes one model. Received: {len(options.models)} models")
    shared.tile_options(options, options.batch_eval)  # or an error, before any model is opened
    reports = []
    for number, path in enumerate(options.models, 1):
        predictor, trained = shared.predictor_of(options, path)
        name, source = shared.dataset_of(options, trained)
        if name is None or not (options.out or trained):
            missing = "dataset" if name is None else "out"
            raise UsageError(f"{path} is not a run, so `--{missing}` must be given")
        out = pathlib.Path(options.out if trained is None else options.out or trained.folder)
        if options.out and len(options.models) > 1:
            out /= f"{number}-{pathlib.Path(path).name}"
        splits = source.train_split, options.split or source.test_split
        if not probe:  # other evaluations need no training images
            source = dataclasses.replace(source, train_split=splits[1])
        dataset = data.load(name, predictor.input_shape[-1], source, predictor.task.kind)
        print(path)
        measure, title = (_probe, probe) if probe else (_evaluate, shared.dataset_label(name))
        with claimed_output(out / "report.json", "an evaluation"):
            reports.append(measure(options, predictor, dataset, splits, out, title))
    if len(reports) > 1:
        print(f"{len(reports)} models: {evaluation.summary_line(evaluation.summarize(reports))}")


def _evaluate(options, predictor, dataset, splits, out, label):
    from vit_keras.evaluation.reports import OF_PICTURES

    sheet = out / "predictions.png"
    report = evaluation.evaluate(
        predictor,
        dataset.split(splits[1]),
        dataset.class_names,
        batch=options.batch_eval,
        real=options.real,
        predictions=options.predictions,
        ignore_class_names=options.ignore_class_names,
        tiles=shared.tile_options(options, options.batch_eval),
        sheet=sheet,
    )
    write_text(out / "report.json", json.dumps(report, indent=1))
    drawn = evaluation.draw_report(report, out, label)
    drawn += [sheet] if predictor.task.kind in OF_PICTURES else []
    print(f"{evaluation.report_table(report)}\n{evaluation.summary_line(report)}")
    if dataset.unreadable.names:
        print(dataset.unreadable.report())
    print(f"written: {', '.join(map(str, [out / 'report.json', *drawn]))}")
    return report


def _probe(options, predictor, dataset, splits, out, name):
    """Writes and prints the rows of a probe of the features; returns its figures by name."""
    common = {"splits": splits, "batch": options.batch_eval}
    common["representation"] = options.representation
    if name == "knn":
        rows = evaluation.evaluate_knn(predictor, dataset, neighbors=options.knn, **common)
        table = evaluation.knn_table(rows)
        figures = {f"knn_{row['neighbors']}": row["weighted"] for row in rows}
    else:
        common |= {"shots": options.fewshot, "l2": options.l2, "seeds": options.seeds}
        rows = evaluation.evaluate_few_shot(predictor, dataset, **common)
        table = evaluation.few_shot_table(rows)
        figures = {f"fewshot_{row['shots']}_l2_{row['l2']:g}": row["mean"] for row in rows}
    write_text(out / f"{name}.json", json.dumps(rows, indent=1))
    print(f"{table}\nwritten: {out / name}.json")
    return figures
