"""`vit-keras bench` measures the speed of models and exported files, and their loss of accuracy."""

import argparse
import functools
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from vit_keras.commands import options as shared
from vit_keras.support.command_line import UsageError

if TYPE_CHECKING:
    import numpy as np

# By name: the wall-clock and CPU seconds of each call, `(rounds, 2)`.
Turns = Mapping[str, "np.ndarray"]


class Speed(NamedTuple):
    """The speed of one of several functions called in turn.

    Attributes:
        milliseconds: The median wall-clock time of a call.
        ratio: The speed divided by that of the first function, by wall-clock time: the median over
            pairs of calls in the same round.
        cpu_ratio: The same ratio in the CPU time of all threads, which other programs on the
            machine affect less.
        cpu_milliseconds: The median CPU time of a call.
    """

    milliseconds: float
    ratio: float
    cpu_ratio: float
    cpu_milliseconds: float


def take_turns(calls: Mapping[str, Callable[[], object]], rounds: int) -> Turns:
    """Calls each function once per round, so that other load on the machine slows all equally.

    A first round compiles programs and fills caches; its times are dropped.

    Args:
        calls: Functions without arguments, by name.
        rounds: The number of calls of each function.

    Returns:
        By name, the wall-clock and CPU seconds of each call, `(rounds, 2)`.
    """
    import numpy as np

    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            clock, cpu = time.perf_counter(), time.process_time()
            call()
            seconds[name].append((time.perf_counter() - clock, time.process_time() - cpu))
    return {name: np.array(rows[1:]) for name, rows in seconds.items()}


def speeds(turns: Turns) -> dict[str, Speed]:
    """Compares every function with the first one, round by round.

    Example:
        >>> first = np.array([[0.004, 0.002], [0.006, 0.003]])
        >>> speeds({"fp32": first, "int8": first / 2})["int8"]
        Speed(milliseconds=2.5, ratio=2.0, cpu_ratio=2.0, cpu_milliseconds=1.25)
    """
    import numpy as np

    first = next(iter(turns.values()))
    table = {}
    for name, seconds in turns.items():
        ratio, cpu_ratio = map(float, np.median(first / np.maximum(seconds, 1e-9), axis=0))
        clock, cpu = map(float, 1e3 * np.median(seconds, axis=0))
        table[name] = Speed(clock, ratio, cpu_ratio, cpu)
    return table


def fastest(table: Mapping[str, Speed], allowed=lambda name: True) -> str:
    """Returns the name with the largest ratio among those that `allowed` accepts."""
    return max(filter(allowed, table), key=lambda name: table[name].ratio)


EXAMPLES = (
    "vit-keras bench runs/digits runs/digits/export/model.tflite",
    "vit-keras bench model.onnx model_int8.onnx model_int8.tflite --batch 1 16 --threads 1",
    "vit-keras bench model.onnx model_int8.onnx --dataset folder:photos   # and their accuracy",
    "vit-keras bench runs/digits --int8 --dataset digits                   # and Keras' own int8",
)
NOTE = (
    "All take turns. Ratios are medians over pairs of turns, and compare with the model that is\n"
    "named first. With --dataset, those that lose too much are not called the fastest."
)
HEAD = "batch  ms a call    CPU ms  images/s   ratio  by CPU time"


def add_options(parser: argparse.ArgumentParser) -> None:
    add, flag = shared.adders(parser)
    shared.add_model(parser, several=True)
    add("--batch", "N", "images a call (1 16)", shared.count, nargs="+", default=[1, 16])
    add("--rounds", "N", "timed calls (20)", shared.count, default=20)
    threads = "threads of LiteRT, ONNX Runtime, OpenVINO and torch (each one's default)"
    add("--threads", "N", threads, shared.count)
    flag("--int8", "compare each run and checkpoint with itself in int8, by Keras' quantize")
    shared.add_image_size(parser)
    shared.add_dataset(parser, default="none")
    add("--split", None, "split to compare answers on (the held-out one)")


def run(options: argparse.Namespace) -> None:
    sources = _sources(options)
    width = max(map(len, [*sources, "model"]))
    answers = _compare_answers(options, sources, width) if options.dataset else {}
    models = {name: _open(*source, options) for name, source in sources.items()}
    print(f"{'model':<{width}}  {HEAD}", flush=True)
    tables = {size: _measure(models, size, options.rounds, width) for size in options.batch}
    for size, table in tables.items():
        _print_fastest(table, size, answers)


def _sources(options) -> dict[str, tuple[str, bool]]:
    """Maps names in the tables to a path and whether Keras quantizes the model to int8."""
    from vit_keras import runtimes

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
    from vit_keras import evaluation

    predictor, trained = evaluation.open_predictor(path, shared.image_size(options))
    if is_int8 and predictor.model is not None:
        with warnings.catch_warnings(action="ignore"):  # about layers that have nothing to quantize
            predictor.model.quantize("int8")
    return predictor, trained


def _open(path, is_int8, options):
    """Returns a function of images, their shape (H, W, C), and their type."""
    from vit_keras import runtimes

    if runtimes.format_of(path) and options.image_size is None:
        exported = runtimes.open(path, options.threads)
        return exported, exported.input_shape, exported.dtype
    predictor, _ = _predictor(path, is_int8, options)
    return predictor.run, predictor.input_shape, "float32"


def _measure(models, size, rounds, width):
    """Times all models on `size` images per call, and prints a row for each."""
    import numpy as np

    rng = np.random.default_rng(0)
    calls = {}
    for path, (call, shape, dtype) in models.items():
        pixels = rng.integers(0, 256, (size, *shape), dtype="uint8")
        images = pixels if dtype == "uint8" else (pixels / 127.5 - 1).astype(dtype)
        calls[path] = functools.partial(call, images)
    table = speeds(take_turns(calls, rounds))
    for path, row in table.items():
        cells = f"{size:>5}  {row.milliseconds:>9.2f}  {row.cpu_milliseconds:>8.2f}"
        cells += f"  {1e3 * size / row.milliseconds:>8.1f}"
        print(f"{path:<{width}}  {cells}  {row.ratio:>6.2f}  {row.cpu_ratio:>11.2f}", flush=True)
    return table


def _print_fastest(table, size, answers):

    best = fastest(table, lambda path: not answers.get(path, {}).get("loses"))
    images = "1 image" if size == 1 else f"{size} images"
    per_second = 1e3 * size / table[best].milliseconds
    print(f"fastest with {images} a call: {best}, {per_second:.1f} images/s")


def _compare_answers(options, sources: dict[str, tuple[str, bool]], width):
    """Compares the models' answers on a data set with those of the first; prints the rows."""
    from vit_keras.exporting import verification

    rows, first = {}, None
    for path, source in sources.items():
        outputs, labels, task = _answers(*source, options)
        first = outputs if first is None else first
        row = verification.compare(outputs, first, task.row.output, labels, task)
        rows[path] = row
        accuracy = rows[next(iter(sources))].get("accuracy")
        row["loses"] = verification.broken_promise("int8", row, accuracy) is not None
    print(f"{'model':<{width}}  images  accuracy  answers as the first  largest change")
    for path, row in rows.items():
        accuracy = f"{row['accuracy']:.2%}" if "accuracy" in row else ""
        agreement = verification.agreement_text(row)
        print(
            f"{path:<{width}}  {row['images']:>6}  {accuracy:>8}  {agreement:>20}  "
            f"{row['largest_difference']:>14.4f}{'  loses too much' if row['loses'] else ''}"
        )
    print("", flush=True)
    return rows


def _answers(path, is_int8, options):
    """Returns a model's probabilities or numbers on the data set, the labels, and its task."""
    from vit_keras import data
    from vit_keras.evaluation.reports import check_classes

    predictor, trained = _predictor(path, is_int8, options)
    _, source = shared.dataset_of(options, trained)
    dataset = data.load(options.dataset, predictor.input_shape[-1], source, predictor.task.kind)
    check_classes(predictor, dataset.class_names, ignore_names=False)
    split = dataset.split(options.split or source.test_split)
    with split.reading():
        outputs, labels, _ = predictor.outputs(predictor.batches(split, max(options.batch)))
    return predictor.as_probabilities(outputs), labels, predictor.task


COMMAND = shared.Command(
    "Measure how fast models and exported files answer, in turns, and name the fastest.",
    EXAMPLES,
    add_options,
    run,
    NOTE,
)
