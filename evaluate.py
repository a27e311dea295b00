"""Evaluates runs or models, or classifies pictures: `python evaluate.py DIR --images a.png`."""

import argparse
import json
import pathlib
import sys


def arguments(given):
    parser = argparse.ArgumentParser(prog="evaluate.py", description=__doc__)
    add = parser.add_argument
    add(
        "models",
        nargs="+",
        metavar="MODEL",
        help="runs' folders, checkpoints of any format, exported SavedModel, TFLite or ONNX files",
    )
    add("--dataset", help="what to evaluate on; by default a run's own")
    add("--data_dir", help="folder of TensorFlow Datasets, for a MODEL that is no run")
    add("--split", help="split, or a slice of it; by default what is held out")
    add("--image_size", type=int, help="pixels; by default the model's")
    add("--batch_eval", type=int, default=256, help="images per step (256)")
    add("--real", metavar="FILE", help="ImageNet-ReaL's real.json: its accuracy")
    add("--predictions", metavar="FILE", help="write each image's, .parquet or .csv")
    add("--ignore_class_names", action="store_true", help="classes are only called differently")
    add("--fewshot", type=int, nargs="+", metavar="SHOTS", help="such as 1 5 10")
    add("--l2", type=float, nargs="+", default=[2.0**10], help="few-shot: (1024)")
    add("--seeds", type=int, default=3, help="few-shot: draws of the shots (3)")
    add("--representation", help="few-shot: the layer read; by default head's input")
    add("--images", nargs="+", metavar="FILE", help="classify these pictures")
    add("--out", help="folder of the report; by default the run's")
    return parser.parse_args(given)


def main(given=None):
    options = arguments(given)

    from vit_keras import data, evaluation, machine
    from vit_keras.config import DataConfig

    machine.prepare()

    if options.predictions and len(options.models) > 1:
        raise ValueError("--predictions is of one model. Received: several")
    reports = []
    for number, path in enumerate(options.models, 1):
        predictor, run = evaluation.open_predictor(path, options.image_size)
        if options.images:
            for image, found in zip(options.images, evaluation.classify(predictor, options.images)):
                print(f"{image}: " + ", ".join(f"{name} {100 * p:.1f}%" for name, p in found))
            continue
        if run is None and not options.dataset:
            raise ValueError(f"{path} is no run, which has a data set: give a --dataset")
        if run is None and not options.out:
            raise ValueError(f"{path} is no run, which has a folder: give an --out")
        out = pathlib.Path(options.out or run.folder)
        if options.out and len(options.models) > 1:
            out /= f"{number}-{pathlib.Path(path).name}"
        where = run.config.data if run else DataConfig(data_dir=options.data_dir)
        name = options.dataset or run.config.dataset
        dataset = data.load(name, predictor.input_shape[-1], where)
        splits = where.train_split, options.split or where.test_split
        out.mkdir(parents=True, exist_ok=True)
        print(path)
        how = few_shot if options.fewshot else evaluate
        reports.append(how(options, predictor, dataset, splits, out))
    if len(reports) > 1:
        print(f"{len(reports)} models: {evaluation.summary_line(evaluation.summarise(reports))}")


def evaluate(options, predictor, dataset, splits, out):
    from vit_keras import evaluation, figures
    from vit_keras.files import write_text

    found = evaluation.evaluate(
        predictor,
        dataset.split(splits[1]),
        dataset.class_names,
        batch=options.batch_eval,
        real=options.real,
        predictions=options.predictions,
        ignore_class_names=options.ignore_class_names,
    )
    write_text(out / "report.json", json.dumps(found, indent=1))
    figures.confusion(found["confusion_matrix"], dataset.class_names, out / "confusion.png")
    figures.reliability(found["calibration"], out / "reliability.png")
    print(f"{evaluation.report_table(found)}\n{evaluation.summary_line(found)}")
    if dataset.unreadable.names:
        print(dataset.unreadable.report())
    print(f"written: {out / 'report.json'}, {out / 'confusion.png'}, {out / 'reliability.png'}")
    return found


def few_shot(options, predictor, dataset, splits, out):
    from vit_keras import evaluation
    from vit_keras.files import write_text

    rows = evaluation.evaluate_few_shot(
        predictor,
        dataset,
        splits=splits,
        batch=options.batch_eval,
        representation=options.representation,
        shots=options.fewshot,
        l2=options.l2,
        seeds=options.seeds,
    )
    write_text(out / "fewshot.json", json.dumps(rows, indent=1))
    print(f"{evaluation.few_shot_table(rows)}\nwritten: {out / 'fewshot.json'}")
    return {f"fewshot_{row['shots']}_l2_{row['l2']:g}": row["mean"] for row in rows}


if __name__ == "__main__":
    try:
        main()
    except (ValueError, FileNotFoundError, ImportError) as error:
        sys.exit(f"evaluate.py: error: {error}")
