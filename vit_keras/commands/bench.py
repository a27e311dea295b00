"""Measure how fast models and exported files answer, and name the fastest.

All models take turns. A ratio is a model's speed divided by the first model's, the
median over pairs of turns. With --dataset, a model that loses too much accuracy is never
called the fastest.

examples:
  vit-keras bench runs/digits runs/digits/export/model.tflite
  vit-keras bench model.onnx model_int8.onnx model_int8.tflite --batch 1 16 --threads 1
  vit-keras bench model.onnx model_int8.onnx --dataset folder:photos   # and their accuracy
  vit-keras bench runs/digits --int8 --dataset digits                   # and Keras' own int8
"""

import time
import warnings

import numpy as np

from vit_keras import data, evaluation, runtimes
from vit_keras.commands import options as shared
from vit_keras.support.command_line import UsageError

HEAD = "batch  ms a call    CPU ms  images/s   ratio  by CPU time"
TIMES = "{:>5}  {:>9.2f}  {:>8.2f}  {:>8.1f}  {:>6.2f}  {:>11.2f}"


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("models", "MODEL", "run, checkpoint of any format, or exported file", nargs="+")
    add("--batch", "N", "images per call", shared.count, [1, 16], nargs="+")
    add("--rounds", "N", "timed calls", shared.count, 20)
    threads = "threads of LiteRT, ONNX Runtime, OpenVINO and torch (each one's default)"
    add("--threads", "N", threads, shared.count)
    flag("--int8", "also measure each run and checkpoint as Keras quantizes it to int8")
    shared.add_image_size(add)
    shared.add_dataset(add, default="none")
    add("--split", None, "split to compare answers on (the held-out one)")


def run(options: shared.Options) -> None:
    shared.refuse_without(options, "dataset", "split", "data_dir", "label_columns")
    sources = _sources(options)
    width = max(map(len, [*sources, "model"]))
    losing = _compare_answers(options, sources, width) if options.dataset else set()
    models = {name: _open(*source, options) for name, source in sources.items()}
    print(f"{'model':<{width}}  {HEAD}", flush=True)
    lines = []
    for size in options.batch:
        turns, rates, ratios = _take_turns(models, size, options.rounds), {}, {}
        first = next(iter(turns.values()))
        for name, seconds in turns.items():
            clock, cpu = np.median(seconds, axis=0)
            rates[name] = size / clock
            ratios[name], by_cpu = np.median(first / np.maximum(seconds, 1e-9), axis=0)
            row = (size, 1e3 * clock, 1e3 * cpu, rates[name], ratios[name], by_cpu)
            print(f"{name:<{width}}  {TIMES.format(*row)}", flush=True)
        best = max((name for name in ratios if name not in losing), key=ratios.__getitem__)
        images = "1 image" if size == 1 else f"{size} images"
        lines.append(f"fastest with {images} per call: {best}, {rates[best]:.1f} images/s")
    print("\n".join(lines))


def _sources(options) -> dict[str, tuple[str, bool]]:
    """Maps names in the tables to a path and whether Keras quantizes the model to int8."""
    sources = {}
    for path in options.models:
        sources[path] = path, False
        if options.int8 and not runtimes.format_of(path):
            sources[f"{path} in int8"] = path, True
    if options.int8 and len(sources) == len({*options.models}):
        received = ", ".join(options.models)
        raise UsageError(f"--int8 quantizes runs and checkpoints only. Received: {received}")
    return sources


def _predictor(path, is_int8, options):
    predictor, trained = evaluation.open_predictor(path, shared.image_size(options))
    if is_int8:
        with warnings.catch_warnings(action="ignore"):  # about layers that have nothing to quantize
            predictor.keras_model("--int8").quantize("int8")
    return predictor, trained


def _open(path, is_int8, options):
    """Returns a function of images, their shape (H, W, C), and their type."""
    exported = runtimes.open(path, options.threads) if runtimes.format_of(path) else None
    if exported and options.image_size is None and None not in exported.input_shape:
        return exported, exported.input_shape, exported.dtype
    predictor, _ = _predictor(path, is_int8, options)  # chooses the size if a file takes any
    if exported:
        return exported, predictor.input_shape, exported.dtype
    return predictor.run, predictor.input_shape, "float32"


def _take_turns(models, size, rounds):
    """Calls each model once per round, so that other load on the machine slows all models equally.

    A first round compiles programs and fills caches; its times are dropped.

    Returns:
        By name, the wall-clock and CPU seconds of each call with `size` images, `(rounds, 2)`.
    """
    rng, images = np.random.default_rng(0), {}
    for name, (_, shape, dtype) in models.items():
        pixels = rng.integers(0, 256, (size, *shape), dtype="uint8")
        images[name] = pixels if dtype == "uint8" else (pixels / 127.5 - 1).astype(dtype)
    seconds = {name: np.zeros((rounds + 1, 2)) for name in models}
    for turn in range(rounds + 1):
        for name, (call, _, _) in models.items():
            began = time.perf_counter(), time.process_time()
            call(images[name])
            seconds[name][turn] = time.perf_counter() - began[0], time.process_time() - began[1]
    return {name: of_rounds[1:] for name, of_rounds in seconds.items()}


def _compare_answers(options, sources: dict[str, tuple[str, bool]], width) -> set[str]:
    """Compares the models' answers on a data set with the first model's, and prints the rows.

    Returns:
        The names of the models that lose too much.
    """
    from vit_keras.evaluation.reports import check_classes
    from vit_keras.exporting import verification

    print(f"{'model':<{width}}  images  accuracy  answers as the first  largest change")
    losing, first, least = set[str](), None, None
    for name, source in sources.items():
        predictor, trained = _predictor(*source, options)
        _, config = shared.dataset_of(options, trained)
        dataset = data.load(options.dataset, predictor.input_shape[-1], config, predictor.task.kind)
        check_classes(predictor, dataset.class_names, ignore_names=False)
        split = dataset.split(options.split or config.test_split)
        outputs, labels = predictor.outputs(predictor.batches(split, max(options.batch)))
        outputs, task = predictor.as_probabilities(outputs), predictor.task
        first = outputs if first is None else first
        row = verification.compare(outputs, first, task.row.output, labels, task)
        least = row.get("accuracy") if least is None else least
        if verification.broken_promise("int8", row, least) is not None:
            losing.add(name)
        accuracy = f"{row['accuracy']:.2%}" if "accuracy" in row else ""
        agreement, change = verification.agreement_text(row), row["largest_difference"]
        text = f"{row['images']:>6}  {accuracy:>8}  {agreement:>20}  {change:>14.4f}"
        print(f"{name:<{width}}  {text}{'  loses too much' if name in losing else ''}")
    print("", flush=True)
    return losing
