"""`vit-keras bench`: how fast models and exported files answer, and what the fast ones lose."""

import argparse
import functools
from typing import Any

from vit_keras.commands import options as shared
from vit_keras.config import UsageError

EXAMPLES = (
    "vit-keras bench runs/digits runs/digits/export/model.tflite",
    "vit-keras bench model.onnx model_int8.onnx model_int8.tflite --batch 1 16 --threads 1",
    "vit-keras bench model.onnx model_int8.onnx --dataset folder:photos   # and their accuracy",
)
NOTE = (
    "All take turns. Ratios are medians over pairs of turns, and compare with the model that is\n"
    "named first. With --dataset, those that lose too much are not called the fastest."
)
HEAD = "batch  ms a call  images/s   ratio  by CPU time"


def add_options(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser, several=True)
    sizes: dict[str, Any] = {"type": int, "nargs": "+", "default": [1, 16], "metavar": "N"}
    parser.add_argument("--batch", help="images a call (1 16)", **sizes)
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="timed calls (20)")
    threads = "threads of LiteRT, ONNX Runtime, OpenVINO and torch (each one's default)"
    parser.add_argument("--threads", type=int, metavar="N", help=threads)
    shared.add_image_size(parser)
    shared.add_dataset(parser, default="none")
    parser.add_argument("--split", help="split to compare answers on (the held-out one)")


def run(options: argparse.Namespace) -> None:
    from vit_keras import machine

    if min(*options.batch, options.rounds, 1 if options.threads is None else options.threads) < 1:
        raise UsageError(
            "--batch, --rounds and --threads must be positive. "
            f"Received: batch={options.batch}, rounds={options.rounds}, threads={options.threads}"
        )
    machine.prepare()
    paths = list(dict.fromkeys(options.models))
    width = max(map(len, [*paths, "model"]))
    answers = _compare_answers(options, paths, width) if options.dataset else {}
    models = {path: _open(path, options) for path in paths}
    print(f"{'model':<{width}}  {HEAD}", flush=True)
    tables = {size: _measure(models, size, options.rounds, width) for size in options.batch}
    for size, table in tables.items():
        _print_fastest(table, size, answers)


def _open(path, options):
    """A function of images, their shape (H, W, C), and their type."""
    from vit_keras import evaluation, runtimes

    if runtimes.format_of(path) and options.image_size is None:
        exported = runtimes.open_file(path, options.threads)
        return exported, exported.input_shape, exported.dtype
    predictor, _ = evaluation.open_predictor(path, shared.image_size(options))
    return predictor.run, predictor.input_shape, "float32"


def _measure(models, size, rounds, width):
    """Times all models on `size` images a call, and prints a row for each."""
    import numpy as np

    from vit_keras.evaluation import speed

    rng = np.random.default_rng(0)
    calls = {}
    for path, (call, shape, dtype) in models.items():
        pixels = rng.integers(0, 256, (size, *shape), dtype="uint8")
        images = pixels if dtype == "uint8" else (pixels / 127.5 - 1).astype(dtype)
        calls[path] = functools.partial(call, images)
    table = speed.speeds(speed.take_turns(calls, rounds))
    for path, row in table.items():
        cells = f"{size:>5}  {row.milliseconds:>9.2f}  {1e3 * size / row.milliseconds:>8.1f}"
        print(f"{path:<{width}}  {cells}  {row.ratio:>6.2f}  {row.cpu_ratio:>11.2f}", flush=True)
    return table


def _print_fastest(table, size, answers):
    from vit_keras.evaluation import speed

    best = speed.fastest(table, lambda path: not answers.get(path, {}).get("loses"))
    images = "1 image" if size == 1 else f"{size} images"
    per_second = 1e3 * size / table[best].milliseconds
    print(f"fastest with {images} a call: {best}, {per_second:.1f} images/s")


def _compare_answers(options, paths, width):
    """How each model answers the images of a data set, beside the first; prints a row for each."""
    from vit_keras.exporting import verification

    rows, first = {}, None
    for path in paths:
        outputs, labels, task = _answers(path, options)
        first = outputs if first is None else first
        row = verification.compare(outputs, first, task.row.output, labels, task.kind)
        rows[path] = row
        row["loses"] = verification.loses(row, rows[paths[0]].get("accuracy"))
    print(f"{'model':<{width}}  images  accuracy  answers as the first  largest change")
    for path, row in rows.items():
        accuracy = f"{row['accuracy']:.2%}" if "accuracy" in row else ""
        print(
            f"{path:<{width}}  {row['images']:>6}  {accuracy:>8}  {row['agreement']:>20.2%}  "
            f"{row['largest_difference']:>14.4f}{'  loses too much' if row['loses'] else ''}"
        )
    print("", flush=True)
    return rows


def _answers(path, options):
    """A model's probabilities or numbers on the data set, the labels, and the model's task."""
    from vit_keras import data, evaluation
    from vit_keras.evaluation.classification import check_classes

    predictor, trained = evaluation.open_predictor(path, shared.image_size(options))
    _, source = shared.dataset_of(options, trained)
    dataset = data.load(options.dataset, predictor.input_shape[-1], source, predictor.task.kind)
    check_classes(predictor, dataset.class_names, ignore_names=False)
    split = dataset.split(options.split or source.test_split)
    with split.reading():
        predicted = predictor.predict(predictor.batches(split, max(options.batch)))
    return predicted.probabilities, predicted.labels, predictor.task


COMMAND = shared.Command(
    "Measure how fast models and exported files answer, in turns, and name the fastest.",
    EXAMPLES,
    add_options,
    run,
    NOTE,
)
