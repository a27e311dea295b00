"""Draws accuracy over latency as more tokens are merged, for a training run.

    python train.py --model.image_size 28 --model.patch_size 2 --total_steps 400 \\
        --optimizer.warmup_steps 40 --eval_every 100 --checkpoint_every 200 --workdir runs/merging
    python -m benchmarks.merging_curve runs/merging --out runs/merging/curve

Every TFLite file classifies the run's held-out images. Files take turns on one thread, and the
milliseconds per image are medians of CPU time. All files have the run's weights: nothing is trained
after the merging.
"""

import argparse
import pathlib
import tempfile

import numpy as np

import vit_keras
from benchmarks.turns import cpu_ms, take_turns

SHARES = (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875)  # of the tokens, in all blocks


def merge_counts(model) -> list[int]:
    """The numbers r of pairs per block that merge `SHARES` of the tokens over all blocks."""
    from vit_keras.layers import EncoderBlock

    blocks = [layer for layer in model.layers if isinstance(layer, EncoderBlock)]
    tokens = blocks[0].input.shape[1]
    return sorted({round(share * tokens / len(blocks)) for share in SHARES})


def write_files(model, folder):
    """Writes a TFLite file for each schedule and r; returns `{(schedule, r): path}`."""
    from vit_keras.exporting import for_inference
    from vit_keras.exporting.serving import SCHEDULES
    from vit_keras.exporting.targets import write_litert

    paths = {}
    for schedule in SCHEDULES:
        for r in merge_counts(model):
            path = f"{folder}/{schedule}_{r}.tflite"
            try:
                write_litert(for_inference(model, r, schedule), path, 1)
            except ValueError as error:  # the first blocks cannot merge so many
                print(f"{schedule}, r = {r}: {error}")
                continue
            paths[schedule, r] = path
    return paths


def measure(paths, images, labels, rounds):
    """Measures the accuracy and the CPU milliseconds per image of each file."""
    from vit_keras import runtimes

    runs = {key: runtimes.open(path, threads=1) for key, path in paths.items()}
    answers = {key: run(images).argmax(axis=-1) for key, run in runs.items()}
    few = images[:20]
    times = take_turns({key: cpu_ms(lambda run=run: run(few)) for key, run in runs.items()}, rounds)
    return [
        {
            "schedule": schedule,
            "r": r,
            "accuracy": float((answers[schedule, r] == labels).mean()),
            "ms": float(np.median(times[schedule, r])) / len(few),
        }
        for schedule, r in runs
    ]


def plot(rows, path):
    from vit_keras.support.figures import BLUE, ORANGE, new_figure, save_figure

    figure, axes = new_figure(5.5, 3.6)
    axis = axes[0, 0]
    for schedule, color in (("constant", BLUE), ("decreasing", ORANGE)):
        points = [row for row in rows if row["schedule"] == schedule]
        speed = [points[0]["ms"] / row["ms"] for row in points]
        axis.plot(
            speed, [100 * row["accuracy"] for row in points], "o-", color=color, label=schedule
        )
        for place, row in zip(speed, points):
            axis.annotate(
                f"{row['r']}",
                (place, 100 * row["accuracy"]),
                textcoords="offset points",
                xytext=(0, 6 if schedule == "constant" else -13),
                ha="center",
                fontsize=8,
                color=color,
            )
    axis.set(xlabel="times as fast as without merging", ylabel="accuracy (%)")
    low, high = axis.get_ylim()
    axis.set_ylim(min(low, high - 5) - 1, high + 1)  # keeps one image's difference small
    axis.legend(title="r pairs per block", frameon=False, loc="lower left")
    axis.grid(alpha=0.3)
    save_figure(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("run")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=pathlib.Path, help="write OUT.png")
    options = parser.parse_args()

    from vit_keras import runs
    from vit_keras.exporting import verification
    from vit_keras.models import preprocessing_of

    model, run = vit_keras.open(options.run), runs.run_of(options.run)
    if run is None:
        raise SystemExit(
            f"The benchmark needs the folder of a training run, which names its data set. "
            f"Received: {options.run}"
        )
    images, labels = verification.from_dataset(run.config.dataset, model, 2000, run.config.data)
    images = preprocessing_of(model).normalize(images.astype("float32"))
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(write_files(model, folder), images, labels, options.rounds)
    print("| schedule | r | accuracy | ms | times as fast |\n|---|--:|--:|--:|--:|")
    for row in rows:
        first = next(other for other in rows if other["schedule"] == row["schedule"])
        print(
            f"| {row['schedule']} | {row['r']} | {row['accuracy']:.2%} | {row['ms']:.2f} "
            f"| {first['ms'] / row['ms']:.2f} |"
        )
    if options.out:
        plot(rows, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
