"""Evaluates a run or a model, or classifies pictures: `python evaluate.py DIR --images a.png`."""

import argparse
import json
import pathlib
import sys


def arguments(given):
    parser = argparse.ArgumentParser(prog="evaluate.py", description=__doc__)
    parser.add_argument("model", help="a run's folder, or a checkpoint of any format")
    parser.add_argument("--dataset", help="what to evaluate on; by default a run's own")
    parser.add_argument("--split", default="test", help="split of the data set (test)")
    parser.add_argument("--batch_eval", type=int, default=256, help="images per step (256)")
    parser.add_argument("--images", nargs="+", metavar="FILE", help="classify these pictures")
    parser.add_argument("--out", help="folder of the report; by default the run's")
    return parser.parse_args(given)


def main(given=None):
    options = arguments(given)

    from vit_keras import data, evaluation, figures, models, runs

    model, run = runs.open_source(options.model)
    if options.images:
        for path, found in zip(options.images, evaluation.classify(model, options.images)):
            print(f"{path}: " + ", ".join(f"{name} {100 * p:.1f}%" for name, p in found))
        return
    if run is None and not options.dataset:
        raise ValueError(f"{options.model} is no run, which has a data set: give a --dataset")
    if run is None and not options.out:
        raise ValueError(f"{options.model} is no run, which has a folder: give an --out")

    dataset = data.load(options.dataset or run.config.dataset, model.input_shape[-1])
    batches = data.eval_batches(
        dataset.split(options.split),
        image_size=model.input_shape[1:3],
        preprocessing=models.preprocessing_of(model),
        batch=options.batch_eval,
    )
    logits, labels = evaluation.predict(model, batches)
    found = evaluation.report(logits, labels, dataset.class_names)

    out = pathlib.Path(options.out or run.folder)
    out.mkdir(parents=True, exist_ok=True)
    runs.write_text(out / "report.json", json.dumps(found, indent=1))
    figures.confusion(found["confusion_matrix"], dataset.class_names, out / "confusion.png")
    print(evaluation.table(found))
    print(f"written: {out / 'report.json'}, {out / 'confusion.png'}")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"evaluate.py: error: {error}")
