"""Compares the input pipeline's images per second with a bare tf.data loop.

    KERAS_BACKEND=jax python -m benchmarks.input_pipeline              # against a bare loop
    KERAS_BACKEND=jax python -m benchmarks.input_pipeline --cpu        # beside other work
    KERAS_BACKEND=jax python -m benchmarks.input_pipeline --cores 1 2 --out runs/cores

`benchmarks.augmentation` times the changes of the images. Pipelines take turns, so that other load
on the machine affects all of them alike; the results are medians, and medians of the ratios within
a round. The clock runs from the third batch to the last, because the end of an iterator waits for
tf.data's tuner, which sleeps ever longer.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks.turns import quartiles, take_turns

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
SIZE, BATCH = (224, 224), 32
EPOCHS, UNTIMED = 4, 2  # epochs in a round, and batches before the clock starts
PICTURE = (387, 469)  # ImageNet's mean height and width


def write_images(folder: pathlib.Path, count: int) -> None:
    """Writes `count` crops of scikit-learn's two photographs as JPEGs of quality 90."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    rng, photographs = np.random.default_rng(0), load_sample_images().images
    for i in range(count):
        photograph = photographs[i % 2]
        top, left = (rng.integers(0, side - part) for side, part in zip((427, 640), PICTURE))
        (folder / "ab"[i % 2]).mkdir(exist_ok=True)
        crop = Image.fromarray(photograph[top : top + PICTURE[0], left : left + PICTURE[1]])
        crop.save(folder / "ab"[i % 2] / f"{i}.jpg", quality=90)


def limit_threads(dataset):
    """Gives `dataset` as many threads as this process may use cores."""
    import tensorflow as tf

    options = tf.data.Options()
    options.threading.private_threadpool_size = len(os.sched_getaffinity(0))
    return dataset.with_options(options)


def bare(paths):
    """A pipeline that does only what every pipeline must: read, decode, resize, batch, prefetch."""
    import tensorflow as tf

    def read(path):
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.image.resize(image, SIZE, antialias=True)  # as new models average pixels

    images = tf.data.Dataset.from_tensor_slices(paths).repeat(EPOCHS)
    images = images.map(read, tf.data.AUTOTUNE)
    return images.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def ours(split, pixels=False, epochs=EPOCHS, **augment):
    """Our pipeline's batches, in [-1, 1] or, with `pixels`, in [0, 255]."""
    from vit_keras import data
    from vit_keras.config import AugmentConfig
    from vit_keras.models import Preprocessing

    return data.train_batches(
        split,
        image_size=SIZE,
        preprocessing=Preprocessing((0.0,), (1 / 255,)) if pixels else Preprocessing(),
        batch=BATCH,
        augment_config=AugmentConfig(**augment),
        seed=0,
        start_step=0,
        total_steps=epochs * len(split) // BATCH,
        num_classes=2,
    )


def images_per_second(dataset, clock=time.perf_counter) -> float:
    """Iterates over `dataset` once."""
    batches = iter(dataset)
    for _ in range(UNTIMED):
        next(batches)
    start = clock()
    for _ in range(len(dataset) - UNTIMED):
        next(batches)
    seconds = clock() - start
    return (len(dataset) - UNTIMED) * BATCH / seconds


def compare(pipelines, rounds, clock=time.perf_counter):
    """Prints and returns each pipeline's median speed; prints its ratio to the first pipeline."""
    speeds = take_turns(
        {
            name: lambda made=made: images_per_second(made, clock)
            for name, made in pipelines.items()
        },
        rounds,
    )
    first = next(iter(speeds.values()))
    for name, values in speeds.items():
        ratio = quartiles(values / first)
        print(f"{name:<40} {np.median(values):7.1f} images/s   ratio {ratio}", flush=True)
    return {name: float(np.median(values)) for name, values in speeds.items()}


def over_cores(counts, options):
    """Measures on each number of cores, in a process of its own, and draws OUT.png."""
    from vit_keras.figures import BLUE, GRAY, ORANGE, new_figure, save_figure

    cores, speeds = sorted(os.sched_getaffinity(0)), {}
    command = [sys.executable, "-m", "benchmarks.input_pipeline"]
    command += ["--images", options.images, "--rounds", options.rounds]
    for count in counts:
        print(f"{count} of {len(cores)} cores", flush=True)
        with tempfile.NamedTemporaryFile("r") as answer:
            os.sched_setaffinity(0, cores[:count])
            try:
                subprocess.run([*map(str, command), "--json", answer.name], check=True)
            finally:
                os.sched_setaffinity(0, cores)
            speeds[count] = json.load(answer)
    figure, axes = new_figure(5, 3.4)
    for name, color in zip(speeds[counts[0]], (GRAY, BLUE, ORANGE)):
        values = [speeds[count][name] for count in counts]
        axes[0, 0].plot(counts, values, "o-", color=color, label=name)
    axes[0, 0].set(xlabel="cores", ylabel="images/s", xticks=counts, ylim=(0, None))
    axes[0, 0].grid(alpha=0.3)
    axes[0, 0].legend(frameon=False)
    save_figure(figure, options.out.with_suffix(".png"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--cores", type=int, nargs="+", help="measure on each of these numbers of cores"
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default="cores", help="with --cores: draw OUT.png"
    )
    parser.add_argument("--cpu", action="store_true", help="count seconds of CPU time")
    parser.add_argument("--json", type=pathlib.Path, help="write the medians to this file")
    options = parser.parse_args()
    if options.cores:
        return over_cores(options.cores, options)

    from vit_keras import data
    from vit_keras.config import DataConfig

    with tempfile.TemporaryDirectory() as folder:
        write_images(pathlib.Path(folder), options.images)
        dataset = data.load(f"folder:{folder}", 3, DataConfig(test_percent=0))
        split = dataset.split("train")
        paths = [split.origin.name(i) for i in range(len(split))]
        pipelines = {
            "bare loop": bare(paths),
            "ours, resize": ours(split),
            "ours, inception crop and flip": ours(split, crop="inception", flip=True),
        }
        limited = {name: limit_threads(made) for name, made in pipelines.items()}
        clock = time.process_time if options.cpu else time.perf_counter
        speeds = compare(limited, options.rounds, clock)
    if options.json:
        options.json.write_text(json.dumps(speeds))
    return None


if __name__ == "__main__":
    main()
