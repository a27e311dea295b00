"""Compares the input pipeline's images per second with timm's and torchvision's DataLoader.

    KERAS_BACKEND=torch python -m benchmarks.input_pipeline                # a worker for each core
    KERAS_BACKEND=torch python -m benchmarks.input_pipeline --cpu          # CPU time of one worker
    KERAS_BACKEND=torch python -m benchmarks.input_pipeline --cores 1 2 --out runs/cores

All read the same JPEGs of ImageNet's mean size, cut an inception crop of 224x224 pixels, mirror
half of them, and make standardized batches of 32; `resize` squeezes them instead. Ours has threads,
and the others have processes. `benchmarks.augmentation` times other changes of the images.
Candidates take turns, so that other load on the machine affects all of them alike; the results are
medians, and medians of the ratios within a round. The clock runs from the third batch to the last.
"""

import argparse
import importlib
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


def peer(name):
    """Imports a project that may need operators of torchvision's; torch gets one thread."""
    import torch

    torch.set_num_threads(1)
    importlib.import_module("benchmarks.torchvision_operators")
    return importlib.import_module(name)


class Epochs:
    """Some epochs of a torch DataLoader."""

    def __init__(self, loader, epochs=EPOCHS):
        self.loader, self.epochs = loader, epochs

    def __len__(self):
        return self.epochs * len(self.loader)

    def __iter__(self):
        for _ in range(self.epochs):
            yield from self.loader


def timm_loader(folder, workers):
    """Batches of timm's `create_loader`."""
    timm = peer("timm.data")
    options = {"is_training": True, "use_prefetcher": False, "num_workers": workers}
    options |= {"interpolation": "bilinear", "scale": (0.05, 1.0), "color_jitter": None}
    options |= {"device": "cpu", "mean": (0.5,) * 3, "std": (0.5,) * 3}
    dataset = timm.create_dataset("", root=str(folder))
    return Epochs(timm.create_loader(dataset, (3, *SIZE), BATCH, **options))


def torchvision_loader(folder, workers):
    """Batches of torchvision's transforms in torch's DataLoader."""
    from torch.utils.data import DataLoader

    transforms = peer("torchvision.transforms")
    changes = [
        transforms.RandomResizedCrop(SIZE, scale=(0.05, 1.0)),
        *(transforms.RandomHorizontalFlip(), transforms.ToTensor()),
        transforms.Normalize((0.5,) * 3, (0.5,) * 3),
    ]
    dataset = peer("torchvision.datasets").ImageFolder(folder, transforms.Compose(changes))
    options = {"shuffle": True, "drop_last": True, "num_workers": workers}
    return Epochs(DataLoader(dataset, BATCH, **options))


def ours(split, pixels=False, epochs=EPOCHS, threads=None, **augment):
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
        threads=threads,
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
    from vit_keras.support.figures import BLUE, GRAY, ORANGE, new_figure, save_figure

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
    for name, color in zip(speeds[counts[0]], (GRAY, ORANGE, BLUE)):
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
    parser.add_argument(
        "--cpu", action="store_true", help="count seconds of CPU time, with one worker"
    )
    parser.add_argument("--json", type=pathlib.Path, help="write the medians to this file")
    options = parser.parse_args()
    if options.cores:
        return over_cores(options.cores, options)

    from vit_keras import data
    from vit_keras.config import DataConfig

    workers = 1 if options.cpu else len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        write_images(pathlib.Path(folder), options.images)
        dataset = data.load(f"folder:{folder}", 3, DataConfig(test_percent=0))
        split = dataset.split("train")
        crop = {"crop": "inception", "flip": True, "threads": workers}
        pipelines = {
            "timm's DataLoader": timm_loader(folder, 0 if options.cpu else workers),
            "torchvision's": torchvision_loader(folder, 0 if options.cpu else workers),
            "ours": ours(split, **crop),
            "ours, resize": ours(split, threads=workers),
        }
        clock = time.process_time if options.cpu else time.perf_counter
        speeds = compare(pipelines, options.rounds, clock)
    if options.json:
        options.json.write_text(json.dumps(speeds))
    return None


if __name__ == "__main__":
    main()
