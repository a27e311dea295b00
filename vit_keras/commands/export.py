"""Export a model for servers, phones and browsers, and compare the files with it.

examples:
  vit-keras export runs/digits                             # SavedModel, TFLite and int8
  vit-keras export runs/digits --format onnx --precision fp32 int8
  vit-keras export vit-base-patch16-224/ --out files --dataset folder:photos
"""

import dataclasses
import pathlib
import signal
import sys

from vit_keras.commands import options as shared
from vit_keras.support.command_line import UsageError, is_command

FORMATS = (
    *("savedmodel", "litert", "onnx", "huggingface_onnx", "openvino", "pt2", "executorch"),
    "coreml",
)
PRECISIONS = ("fp32", "fp16", "int8", "int4", "int8-static", "int8-static16", "fp16-compute")


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("model", "MODEL", "run, or checkpoint of any format")
    formats = {"nargs": "+", "default": ["savedmodel", "litert"], "names": FORMATS}
    add("--format", "NAME", "", dest="formats", **formats)
    add(
        "--precision",
        "NAME",
        "of the files (depends on the format)",
        names=PRECISIONS,
        nargs="+",
        dest="precisions",
    )
    add("--out", "PATH", "folder of the files (MODEL/export)", shared.folder)
    add("--output", "NAME", "logits, features or mask instead of probabilities or numbers")
    flag("--raw", "prepared float images in, logits out")
    add("--static_batch", "N", "images per call (1 on phones, or any)", shared.count, dest="batch")
    flag("--dynamic_batch", "any number of images per call, in every format")
    flag("--dynamic_size", "images of any size (savedmodel, onnx, openvino)")
    shared.add_image_size(add)
    add("--patch_sizes", "P", "patch sizes at which to export a FlexiViT", shared.count, nargs="+")
    add("--token_merging", "R", "token pairs that each block merges", int, 0)
    add("--merging_schedule", "NAME", "", str, "constant", ("constant", "decreasing"))
    add("--opset", "N", "opset of ONNX files, 20 to 23; 23 has Attention (20)", int)
    shared.add_labels(add)
    flag("--attention", "add an output: attention over the patches")
    shared.add_dataset(add)
    add("--num_images", "N", "held-out images to compare", shared.count, 512)


def run(options: shared.Options) -> None:
    from vit_keras import models, runs, weights
    from vit_keras.exporting import export, export_patch_sizes, exporter, manifest, verification
    from vit_keras.exporting.targets import Plan

    if is_command():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # export then removes its leftovers
    trained, model = runs.run_of(options.model), weights.open(options.model)
    model = weights.with_text_head(model, options.labels) if options.labels else model
    if not (options.out or trained):
        raise UsageError(f"{options.model} is not a run, so `--out` must be given")
    folder = pathlib.Path(options.out or pathlib.Path(options.model, "export"))
    if size := shared.image_size(options):
        model = models.with_image_size(models.with_one_output(model), size)
    arguments = {field.name: getattr(options, field.name) for field in dataclasses.fields(Plan)}
    data_set, config = shared.dataset_of(options, trained)
    if data_set:
        images, labels = verification.from_dataset(data_set, model, options.num_images, config)
        calibration, _ = verification.from_dataset(data_set, model, 64, config, train=True)
        arguments |= {"images": images, "labels": labels, "calibration": calibration}
    if options.patch_sizes:
        rows = export_patch_sizes(model, folder, options.patch_sizes, **arguments)
        print(exporter.costs(rows), end="")
        print(folder / exporter.COSTS)
        return
    for row in export(model, folder, **arguments):
        texts = (f"{name}: {text}" for name, text in manifest.facts(row).items())
        print(f"{folder / row['file']}: {', '.join(texts)}")
    print(f"{folder / 'manifest.json'}")
