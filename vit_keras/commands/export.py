"""`vit-keras export` makes files for servers, phones and browsers, each compared with Keras."""

import argparse
import functools
import pathlib
import signal
import sys

from vit_keras.commands import options as shared
from vit_keras.support.command_line import UsageError

FORMATS = (
    *("savedmodel", "litert", "onnx", "huggingface_onnx", "openvino", "pt2", "executorch"),
    "coreml",
)
PRECISIONS = ("fp32", "fp16", "int8", "int4", "int8-static", "int8-static16", "fp16-compute")
EXAMPLES = (
    "vit-keras export runs/digits                             # SavedModel, TFLite and int8",
    "vit-keras export runs/digits --format onnx --precision fp32 int8",
    "vit-keras export vit-base-patch16-224/ --out files --dataset folder:photos",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add, flag = shared.adders(parser)
    shared.add_model(parser)
    formats, default = f"{' '.join(FORMATS)} (savedmodel litert)", ["savedmodel", "litert"]
    add("--format", "NAME", formats, nargs="+", choices=FORMATS, default=default)
    precisions = f"{' '.join(PRECISIONS)} (by format)"
    add("--precision", "NAME", precisions, nargs="+", choices=PRECISIONS)
    shared.add_out(parser, "folder of the files (MODEL/export)", kind=shared.folder)
    add("--output", "NAME", "logits, features or mask instead of probabilities or numbers")
    flag("--raw", "prepared float images in, logits out")
    add("--static_batch", "N", "images a call (1 on phones, else any)", shared.count)
    flag("--dynamic_batch", "any number of images a call, everywhere")
    flag("--dynamic_size", "images of any size (savedmodel, onnx, openvino)")
    shared.add_image_size(parser)
    add("--patch_sizes", "P", "a FlexiViT at several costs", shared.count, nargs="+")
    add("--token_merging", "R", "token pairs merged a block (0)", int, default=0)
    schedules = ("constant", "decreasing")
    text = "or decreasing (constant)"
    add("--merging_schedule", "NAME", text, choices=schedules, default="constant")
    add("--opset", "N", "of ONNX files: 20 to 23, with Attention (20)", int)
    shared.add_labels(parser)
    flag("--attention", "add an output: attention over the patches")
    flag("--sensitivity", "report what each layer loses in fewer bits")
    shared.add_dataset(parser)
    add("--num_images", "N", "held-out images compared (512)", shared.count, default=512)


def run(options: argparse.Namespace) -> None:
    from vit_keras import runs, weights
    from vit_keras.exporting import export, manifest

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # export then removes its leftovers
    trained, model = runs.run_of(options.model), weights.open(options.model)
    model = weights.with_text_head(model, options.labels) if options.labels else model
    if options.out:
        folder = pathlib.Path(options.out)
    elif trained:
        folder = trained.folder / "export"
    else:
        raise UsageError(f"{options.model} is not a run, so `--out` must be given")
    size = shared.image_size(options)
    arguments = {
        "formats": options.format,
        "precisions": options.precision,
        "sensitivity": options.sensitivity,
        "output": options.output,
        "raw": options.raw,
        "batch": options.static_batch,
        "dynamic_batch": options.dynamic_batch,
        "dynamic_size": options.dynamic_size,
        "token_merging": options.token_merging,
        "merging_schedule": options.merging_schedule,
        "opset": options.opset,
        "attention": options.attention,
        **_compared(options, model, trained, size),
    }
    if options.patch_sizes:
        return _export_patch_sizes(options, model, folder, size, arguments)
    rows = export(model, folder, image_size=size, **arguments)
    for row in rows:
        print(f"{folder / row['file']}: {manifest.summary(row)}")
    print(f"{folder / 'manifest.json'}")
    return None


def _export_patch_sizes(options, model, folder, size, arguments):
    from vit_keras import models
    from vit_keras.exporting import export_patch_sizes, patch_sizes

    model = models.with_image_size(model, size) if size else model
    rows = export_patch_sizes(model, folder, options.patch_sizes, **arguments)
    print(patch_sizes.table(rows), end="")
    print(folder / patch_sizes.TABLE)


def _compared(options, model, trained, size):
    """Returns held-out images with labels, and training images, if there is a data set."""
    from vit_keras import models
    from vit_keras.exporting import samples

    name, source = shared.dataset_of(options, trained)
    if name is None:
        return {}
    shape = (*(size or model.input_shape[1:3]), model.input_shape[-1])
    preprocessing = models.preprocessing_of(model)
    kind = models.task_of(model).kind
    draw = functools.partial(samples.from_dataset, name, shape, preprocessing, task=kind)
    images, labels = draw(options.num_images, source)
    calibration, _ = draw(64, source, train=True)
    return {"images": images, "labels": labels, "calibration": calibration}


COMMAND = shared.Command(
    "Export a model for servers, phones and browsers; every file is compared with Keras.",
    EXAMPLES,
    add_options,
    run,
)
