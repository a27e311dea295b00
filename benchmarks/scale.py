"""What a training step costs over image size, patch, depth, batch and kept patches.

    KERAS_BACKEND=torch python benchmarks/scale.py --out docs/scale

Ti/16 at 224² but for what varies. Each point is a process of its own: the median CPU time of its
steps, and the memory that building the model and training add at most.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import memory  # noqa: E402

BASE = {"image_size": 224, "patch_size": 16, "num_layers": 12, "batch": 2, "patch_keep_rate": 1.0}
AXES = {
    "image_size": [96, 160, 224, 288],
    "patch_size": [14, 16, 28, 32],
    "num_layers": [3, 6, 12, 18],
    "batch": [1, 2, 4, 8],
    "patch_keep_rate": [0.25, 0.5, 0.75, 1.0],
}


def point(how: dict, steps: int) -> dict:
    """Times one model in this process."""
    import keras
    import numpy as np

    from vit_keras.models import VisionTransformer

    how = dict(how)
    batch, side = how.pop("batch"), how["image_size"]
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (batch, side, side, 3)).astype("float32")
    labels = rng.integers(0, 1000, batch)
    before = memory.resident()
    sizes = {"hidden_size": 192, "num_heads": 3, "mlp_dim": 768, "num_classes": 1000}
    model = VisionTransformer(**how, **sizes, gelu="tanh", seed=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-4), loss)
    seconds = []
    for _ in range(steps + 2):
        begin = time.process_time()
        model.train_on_batch(images, labels)
        seconds.append(time.process_time() - begin)
    return {"cpu_s": statistics.median(seconds[2:]), "gib": memory.peak() - before}


def measured(how: dict, steps: int) -> dict:
    command = [sys.executable, __file__, "--point", json.dumps(how), "--steps", str(steps)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_WAIT_POLICY": "PASSIVE"}
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    if run.returncode:
        raise RuntimeError(run.stderr[-3000:])
    return json.loads(run.stdout.splitlines()[-1])


def plot(rows: list[dict], path) -> None:
    from vit_keras.figures import BLUE, ORANGE, new_figure, save_figure

    figure, axes = new_figure(14, 4.6, rows=2, columns=len(AXES))
    for column, axis in zip(axes.T, AXES):
        own = [row for row in rows if row["axis"] == axis]
        places = [row[axis] for row in own]
        for cell, name, color in zip(column, ("cpu_s", "gib"), (BLUE, ORANGE)):
            values = [row[name] for row in own]
            cell.plot(places, values, color=color, marker="o")
            cell.set(xlabel=axis, ylim=(0, 1.1 * max(values)))
            cell.grid(alpha=0.3)
    axes[0, 0].set_ylabel("CPU seconds a step")
    axes[1, 0].set_ylabel("GiB")
    save_figure(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, help="writes OUT.json and OUT.png")
    parser.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        return print(json.dumps(point(options.point, options.steps)))
    rows, base = [], measured(BASE, options.steps)
    print("| varied | value | time ÷ Ti/16 at 224² | memory ÷ | CPU s a step | GiB |")
    print("|---|--:|--:|--:|--:|--:|")
    for axis, values in AXES.items():
        for value in values:
            found = measured({**BASE, axis: value}, options.steps)
            rows.append({"axis": axis, axis: value, **found})
            time_ratio, memory_ratio = (found[k] / base[k] for k in ("cpu_s", "gib"))
            print(
                f"| {axis} | {value} | {time_ratio:.2f} | {memory_ratio:.2f} "
                f"| {found['cpu_s']:.3f} | {found['gib']:.2f} |",
                flush=True,
            )
    if options.out:
        options.out.with_suffix(".json").write_text(json.dumps({"base": base, "rows": rows}))
        plot(rows, options.out.with_suffix(".png"))
    return None


if __name__ == "__main__":
    main()
