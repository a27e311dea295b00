"""Exports a run or a model for servers and phones: `python export.py MODEL --format onnx`."""

import argparse
import pathlib
import signal
import sys


def arguments(given):
    parser = argparse.ArgumentParser(prog="export.py", description=__doc__)
    add = parser.add_argument
    add("model", help="a run's folder, or a checkpoint of any format")
    several = {"nargs": "+", "metavar": "NAME"}
    formats = "savedmodel litert onnx openvino pt2 coreml (savedmodel litert)"
    add("--format", default=["savedmodel", "litert"], help=formats, **several)
    precisions = "fp32 fp16 int8 int4 int8-static; by default what each format is best at"
    add("--precision", help=precisions, **several)
    add("--out", help="folder for the files; by default MODEL/export")
    add("--output", default="softmax", help="softmax, logits or features (softmax)")
    add("--raw", action="store_true", help="prepared float images in, logits out")
    add("--batch", type=int, help="images a call; by default 1 on phones, any number on servers")
    add("--dynamic-batch", action="store_true", help="any number of images for every format")
    add("--image-size", type=int, nargs="+", metavar="PIXELS", help="side, or height and width")
    add("--token-merging", type=int, default=0, metavar="R", help="pairs merged a block (0)")
    add("--merging-schedule", default="constant", help="constant or decreasing (constant)")
    add("--attention", action="store_true", help="a second output: attention over the patches")
    add("--sensitivity", action="store_true", help="report what each layer loses in fewer bits")
    add("--dataset", help="what to compare on; by default a run's own, else photographs")
    add("--images", type=int, default=512, help="images of the test split to compare on (512)")
    return parser.parse_args(given)


def main(given=None):
    options = arguments(given)

    from vit_keras import models, runs
    from vit_keras.config import DataConfig
    from vit_keras.exporting import export, manifest, samples

    model, run = runs.open_source(options.model)
    if run is None and not options.out:
        raise ValueError(f"{options.model} is no run, which has a folder: give an --out")
    name = options.dataset or (run.config.dataset if run else None)
    size = options.image_size and (options.image_size * 2)[:2]
    compared = {}
    if name:
        shape = (*(size or model.input_shape[1:3]), model.input_shape[-1])
        how, where = models.preprocessing_of(model), run.config.data if run else DataConfig()
        tested = samples.labelled(name, shape, how, options.images, where)
        compared["images"], compared["labels"] = tested
        compared["calibration"], _ = samples.labelled(name, shape, how, 64, where, train=True)
    folder = pathlib.Path(options.out or run.folder / "export")
    rows = export(
        model,
        folder,
        formats=options.format,
        precisions=options.precision,
        image_size=size and tuple(size),
        sensitivity=options.sensitivity,
        output=options.output,
        raw=options.raw,
        batch=options.batch,
        dynamic_batch=options.dynamic_batch,
        token_merging=options.token_merging,
        merging_schedule=options.merging_schedule,
        attention=options.attention,
        **compared,
    )
    for row in rows:
        print(f"{folder / row['file']}: {manifest.summary(row)}")
    print(f"{folder / 'manifest.json'}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing half-made is left
    try:
        main()
    except (ValueError, FileNotFoundError, ImportError, RuntimeError) as error:
        sys.exit(f"export.py: error: {error}")
