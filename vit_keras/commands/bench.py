"""Measure how fast models and exported files answer, and name the fastest.

All models take turns. Ratios are medians over pairs of turns, and compare with the model
named first. With --dataset, models that lose too much accuracy are not called the fastest.

examples:
  vit-keras bench runs/digits runs/digits/export/model.tflite
  vit-keras bench model.onnx model_int8.onnx model_int8.tflite --batch 1 16 --threads 1
  vit-keras bench model.onnx model_int8.onnx --dataset folder:photos   # and their accuracy
  vit-keras bench runs/digits --int8 --dataset digits                   # and Keras' own int8
"""

import argparse
import time
import warnings

import numpy as np

from vit_keras import data, evaluation, runtimes
from vit_keras.commands import options as shared
from vit_keras.support.command_line import UsageError

HEAD = "batch  ms a call    CPU ms  images/s   ratio  by CPU time"


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("models", "MODEL", "run, checkpoint of any format, or exported file", nargs="+")
    add("--batch", "N", "images per call (1 16)", shared.count, nargs="+", default=[1, 16])
    add("--rounds", "N", "timed calls (20)", shared.count, default=20)
    threads = "threads of LiteRT, ONNX Runtime, OpenVINO and torch (each one's default)"
    add("--threads", "N", threads, shared.count)
    flag("--int8", "compare each run and checkpoint with its int8 version by Keras' quantize")
    shared.add_image_size(add)
    shared.add_dataset(add, default="none")
    add("--split", None, "split to compare answers on (the held-out one)")


def run(options: argparse.Namespace) -> None:
    sources = _sources(options)
    width = max(map(len, [*sources, "model"]))
    losing = _compare_answers(options, sources, width) if options.dataset else set()
    models = {name: _open(*source, options) for name, source in sources.items()}
    print(f"{'model':<{width}}  {HEAD}", flush=True)
    lines = []
    for size in options.batch:
        turns, images_per_second, ratios = _take_turns(models, size, options.rounds), {}, {}
        first = next(iter(turns.values()))
        for name, seconds in turns.items():
            clock, cpu = np.median(seconds, axis=0)
            ratios[name], by_cpu = np.median(first / np.maximum(seconds, 1e-9), axis=0)
            images_per_second[name] = size / clock
            print(
                f"{name:<{width}}  {size:>5}  {1e3 * clock:>9.2f}  {1e3 * cpu:>8.2f}  "
                f"{size / clock:>8.1f}  {ratios[name]:>6.2f}  {by_cpu:>11.2f}",
                flush=True,
            )
        best = max((name for name in ratios if name not in losing), key=ratios.__getitem__)
        images = "1 image" if size == 1 else f"{size} images"
        speed = f"{images_per_second[best]:.1f} images/s"
        lines.append(f"fastest with {images} a call: {best}, {speed}")
    print("\n".join(lines))


def _sources(options) -> dict[str, tuple[str, bool]]:
    """Maps names in the tables to a path and whether Keras quantizes the model to int8."""
    sources: dict[str, tuple[str, bool]] = {}
    for path in options.models:
        sources[path] = (path, False)
        if options.int8 and not runtimes.format_of(path):
            sources[f"{path} in int8"] = (path, True)
    if options.int8 and not any(is_int8 for _, is_int8 in sources.values()):
        raise UsageError(
            "--int8 quantizes runs and checkpoints; an exported file already has its precision. "
            f"Received: {', '.join(options.models)}"
        )
    return sources


def _predictor(path, is_int8, options):
    predictor, trained = evaluation.open_predictor(path, shared.image_size(options))
    if is_int8 and predictor.model is not None:
        with warnings.catch_warnings(action="ignore"):  # about layers that have nothing to quantize
            predictor.model.quantize("int8")
    return predictor, trained


def _open(path, is_int8, options):
    """Returns a function of images, their shape (H, W, C), and their type."""
    if runtimes.format_of(path) and options.image_size is None:
        exported = runtimes.open(path, options.threads)
        return exported, exported.input_shape, exported.dtype
    predictor, _ = _predictor(path, is_int8, options)
    return predictor.run, predictor.input_shape, "float32"


def _take_turns(models, size, rounds):
    """Calls each model once per round, so that other load on the machine slows all models equally.

    A first round compiles programs and fills caches; its times are dropped.

    Returns:
        By name, the wall-clock and CPU seconds of each call with `size` images, `(rounds, 2)`.
    """
    rng = np.random.default_rng(0)
    images: dict[str, np.ndarray] = {}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
    for name, (_, shape, dtype) in models.items():
        pixels = rng.integers(0, 256, (size, *shape), dtype="uint8")
        images[name] = pixels if dtype == "uint8" else (pixels / 127.5 - 1).astype(dtype)
    for _ in range(rounds + 1):
        for name, (call, _, _) in models.items():
            clock, cpu = time.perf_counter(), time.process_time()
            call(images[name])
            seconds[name].append((time.perf_counter() - clock, time.process_time() - cpu))
    return {name: np.array(rows[1:]) for name, rows in seconds.items()}


def _compare_answers(options, sources: dict[str, tuple[str, bool]], width):
    """Compares the models' answers on a data set with the first model's, and prints the rows.

    Returns:
        The names of the models that lose too much.
    """
    from vit_keras.exporting import verification

    print(f"{'model':<{width}}  images  accuracy  answers as the first  largest change")
    losing, first, least = set(), None, None
    for path, source in sources.items():
        outputs, labels, task = _answers(*source, options)
        first = outputs if first is None else first
        row = verification.compare(outputs, first, task.row.output, labels, task)
        least = row.get("accuracy") if least is None else least
        if verification.broken_promise("int8", row, least) is not None:
            losing.add(path)
        accuracy = f"{row['accuracy']:.2%}" if "accuracy" in row else ""
        print(
            f"{path:<{width}}  {row['images']:>6}  {accuracy:>8}  "
            f"{verification.agreement_text(row):>20}  {row['largest_difference']:>14.4f}"
            f"{'  loses too much' if path in losing else ''}"
        )
    print("", flush=True)
    return losing


def _answers(path, is_int8, options):
    """Returns a model's probabilities or numbers on the data set, the labels, and its task."""
    from vit_keras.evaluation.reports import check_classes

    predictor, trained = _predictor(path, is_int8, options)
    _, source = shared.dataset_of(options, trained)
    dataset = data.load(options.dataset, predictor.input_shape[-1], source, predictor.task.kind)
    check_classes(predictor, dataset.class_names, ignore_names=False)
    split = dataset.split(options.split or source.test_split)
    outputs, labels, _ = predictor.outputs(predictor.batches(split, max(options.batch)))
    return predictor.as_probabilities(outputs), labels, predictor.task
