"""Loads or exports a model again and again in one process, and looks at what the process holds.

    KERAS_BACKEND=jax python -m benchmarks.repetitions loads
    KERAS_BACKEND=jax python -m benchmarks.repetitions exports

`loads` opens a `.keras` file and predicts with the model, 100 times. `exports` makes a SavedModel,
20 times. After the first fifth, memory should stay within 2 %. The model takes 11 MB, so that one
that is kept would show. glibc runs with the settings of the environment.
"""

import argparse
import gc
import json
import os
import pathlib
import sys
import tempfile
import time

from benchmarks import process_signs

SIZES = {"hidden_size": 192, "num_layers": 6, "num_heads": 3, "mlp_dim": 768, "num_classes": 10}
REPETITIONS = {"loads": 100, "exports": 20}


def load(path: pathlib.Path) -> None:
    import numpy as np

    import vit_keras

    model = vit_keras.open(path)
    model.predict(np.zeros((4, *model.input_shape[1:]), "float32"), verbose=0)


def export(path: pathlib.Path) -> None:
    import vit_keras
    from vit_keras import exporting

    options = {"formats": ("savedmodel",)}
    exporting.export(vit_keras.open(path), path.parent / "export", **options)


def repeat(part: str, times: int, path: pathlib.Path) -> list[process_signs.Signs]:
    """Does `part` with the model at `path`; a look after each time."""
    from vit_keras.models import VisionTransformer
    from vit_keras.weights import save_model

    save_model(VisionTransformer(64, 16, **SIZES, seed=0), path)
    seen, since = [], time.monotonic()
    for i in range(times):
        {"loads": load, "exports": export}[part](path)
        gc.collect()
        seen.append(process_signs.look(since=since))
        print(f"{part} {i + 1}: {json.dumps(vars(seen[-1]))}", flush=True)
    return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("part", choices=REPETITIONS)
    parser.add_argument("--times", type=int, help="how often (100 loads, 20 exports)")
    options = parser.parse_args()
    times = options.times or REPETITIONS[options.part]
    with tempfile.TemporaryDirectory() as folder:
        seen = repeat(options.part, times, pathlib.Path(folder) / "model.keras")
    ends = process_signs.compare_ends(seen[times // 5 :])
    span = lambda name: f"{ends[name]['first']:g} → {ends[name]['last']:g}"
    cells = [os.environ.get("KERAS_BACKEND", "tensorflow"), f"{times} {options.part}"]
    cells += [f"{100 * ends['resident_growth']:+.2f} %", span("resident"), span("files")]
    print(f"| {' | '.join([*cells, span('threads')])} |")
    return int(not process_signs.is_flat(ends))


if __name__ == "__main__":
    sys.exit(main())
