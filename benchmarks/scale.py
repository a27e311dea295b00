"""Measures a training step over image size, patch size, depth, batch and share of kept patches.

    KERAS_BACKEND=torch python -m benchmarks.scale --out docs/scale

The model is Ti/16 at 224² but for the value that varies. Each point runs in a process of its own
and has the median CPU time of a step and the memory that building and training the model add.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from benchmarks import memory

ROOT = pathlib.Path(__file__).parents[1]
BASE = {"image_size": 224, "patch_size": 16, "num_layers": 12, "batch": 2, "patch_keep_rate": 1.0}
AXES = {
    "image_size": [96, 160, 224, 288],
    "patch_size": [14, 16, 28, 32],
    "num_layers": [3, 6, 12, 18],
    "batch": [1, 2, 4, 8],
    "patch_keep_rate": [0.25, 0.5, 0.75, 1.0],
}


def measure(point: dict, steps: int) -> dict:
    """Measures one model in this process; `point` has the keys of `BASE`."""
    import keras
    import numpy as np

    from vit_keras.layers import backends
    from vit_keras.models import VisionTransformer

    backends.use(backends.measure())

    arguments = dict(point)
    batch, side = arguments.pop("batch"), arguments["image_size"]
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (batch, side, side, 3)).astype("float32")
    labels = rng.integers(0, 1000, batch)
    before = memory.resident()
    sizes = {"hidden_size": 192, "num_heads": 3, "mlp_dim": 768, "num_classes": 1000}
    model = VisionTransformer(**arguments, **sizes, gelu="tanh", seed=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-4), loss)
    seconds = []
    for _ in range(steps + 2):
        start = time.process_time()
        model.train_on_batch(images, labels)
        seconds.append(time.process_time() - start)
    return {"cpu_s": statistics.median(seconds[2:]), "gib": memory.peak() - before}


def measure_apart(point: dict, steps: int) -> dict:
    """Measures one model in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", "--point", json.dumps(point)]
    command += ["--steps", str(steps)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_WAIT_POLICY": "PASSIVE"}
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    if run.returncode:
        raise RuntimeError(run.stderr[-3000:])
    return json.loads(run.stdout.splitlines()[-1])


def plot(rows: list[dict], path) -> None:
    """Draws time and memory over every axis."""
    from vit_keras.support.figures import BLUE, ORANGE, new_figure, save_figure

    figure, axes = new_figure(14, 4.6, rows=2, columns=len(AXES))
    for column, axis in zip(axes.T, AXES):
        points = [row for row in rows if row["axis"] == axis]
        places = [row[axis] for row in points]
        for cell, name, color in zip(column, ("cpu_s", "gib"), (BLUE, ORANGE)):
            values = [row[name] for row in points]
            cell.plot(places, values, color=color, marker="o")
            cell.set(xlabel=axis, ylim=(0, 1.1 * max(values)))
            cell.grid(alpha=0.3)
    axes[0, 0].set_ylabel("CPU seconds per step")
    axes[1, 0].set_ylabel("GiB")
    save_figure(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, help="write OUT.json and OUT.png")
    parser.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        return print(json.dumps(measure(options.point, options.steps)))
    rows, base = [], measure_apart(BASE, options.steps)
    print("| varied | value | time ÷ Ti/16 at 224² | memory ÷ | CPU s a step | GiB |")
    print("|---|--:|--:|--:|--:|--:|")
    for axis, values in AXES.items():
        for value in values:
            result = measure_apart({**BASE, axis: value}, options.steps)
            rows.append({"axis": axis, axis: value, **result})
            time_ratio, memory_ratio = (result[k] / base[k] for k in ("cpu_s", "gib"))
            print(
                f"| {axis} | {value} | {time_ratio:.2f} | {memory_ratio:.2f} "
                f"| {result['cpu_s']:.3f} | {result['gib']:.2f} |",
                flush=True,
            )
    if options.out:
        options.out.with_suffix(".json").write_text(json.dumps({"base": base, "rows": rows}))
        plot(rows, options.out.with_suffix(".png"))
    return None


if __name__ == "__main__":
    main()
