"""Exports a run or a model for servers and phones: `python export.py DIR`."""

import argparse
import pathlib
import sys

LARGEST_DIFFERENCE = 1e-3  # of a probability, from Keras


def arguments(given):
    parser = argparse.ArgumentParser(prog="export.py", description=__doc__)
    parser.add_argument("model", help="a run's folder, or a checkpoint of any format")
    parser.add_argument("--out", help="folder for the files; by default DIR/export")
    parser.add_argument("--dataset", help="what to compare on; by default a run's own, else noise")
    return parser.parse_args(given)


def main(given=None):
    options = arguments(given)

    from vit_keras import data, models, runs
    from vit_keras.exporting import export

    model, run = runs.open_source(options.model)
    if run is None and not options.out:
        raise ValueError(f"{options.model} is no run, which has a folder: give an --out")
    name = options.dataset or (run.config.dataset if run else None)
    images = data.sample_images(name, model.input_shape[1:], models.preprocessing_of(model))
    folder = pathlib.Path(options.out or run.folder / "export")
    parity = export(model, folder, images, models.class_names_of(model))

    for file, difference, count in parity:
        print(f"{folder / file}: largest difference from Keras {difference:.2e} ({count} images)")
    print(f"{folder / 'labels.txt'}")
    if not max(row.difference for row in parity) <= LARGEST_DIFFERENCE:
        raise ValueError(f"A file differs from Keras by more than {LARGEST_DIFFERENCE}")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, FileNotFoundError, RuntimeError) as error:
        sys.exit(f"export.py: error: {error}")
