"""`vit-keras bench`: milliseconds and images a second of models and exported files."""

import argparse
import statistics
import time
from typing import Any

from vit_keras.commands import options as shared
from vit_keras.config import UsageError

EXAMPLES = (
    "vit-keras bench runs/digits runs/digits/export/model.tflite",
    "vit-keras bench a.onnx b.tflite --batch 1 16 --rounds 50",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser, several=True)
    sizes: dict[str, Any] = {"type": int, "nargs": "+", "default": [1, 16], "metavar": "N"}
    parser.add_argument("--batch", help="images a call (1 16)", **sizes)
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="timed calls (20)")
    shared.add_image_size(parser)


def run(options: argparse.Namespace) -> None:
    from vit_keras import evaluation, machine

    if min(options.batch) < 1 or options.rounds < 1:
        raise UsageError(
            "--batch and --rounds must be positive. "
            f"Received: batch={options.batch}, rounds={options.rounds}"
        )
    machine.prepare()
    size = shared.image_size(options)
    predictors = {path: evaluation.open_predictor(path, size)[0] for path in options.models}
    width = max(map(len, [*predictors, "model"]))
    print(f"{'model':<{width}}  batch  ms a call  images/s")
    for batch in options.batch:
        for path, milliseconds in _medians(predictors, batch, options.rounds).items():
            speed = 1e3 * batch / milliseconds
            print(f"{path:<{width}}  {batch:>5}  {milliseconds:>9.2f}  {speed:>8.1f}", flush=True)


def _medians(predictors, batch, rounds):
    """The median milliseconds of each predictor, which take turns so that load is shared alike."""
    import numpy as np

    rng = np.random.default_rng(0)
    images: dict[str, np.ndarray] = {}
    times: dict[str, list[float]] = {path: [] for path in predictors}
    for path, predictor in predictors.items():
        images[path] = rng.uniform(-1, 1, (batch, *predictor.input_shape)).astype("float32")
        predictor.run(images[path])  # compiles, and fills caches
    for _ in range(rounds):
        for path, predictor in predictors.items():
            start = time.perf_counter()
            predictor.run(images[path])
            times[path].append(1e3 * (time.perf_counter() - start))
    return {path: statistics.median(values) for path, values in times.items()}


COMMAND = shared.Command(
    "Measure how fast models and exported files answer, in turns.", EXAMPLES, add_options, run
)
