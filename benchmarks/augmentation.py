"""Compares the augmentation of training images with timm's transforms, by CPU time.

    KERAS_BACKEND=jax python -m benchmarks.augmentation              # beside timm
    KERAS_BACKEND=jax python -m benchmarks.augmentation --mixing     # MixUp and CutMix
    python -m benchmarks.run --augment                               # RandAugment and timm's alone

Everything reads the same JPEGs of ImageNet's mean size, decodes them, cuts an inception crop of
224x224 pixels, mirrors half of them, and makes batches of 32 standardized images. Candidates take
turns. A ratio compares images per second of CPU time within a round; its median and quartiles are
printed. The time covers all threads of the process and the start of an iterator. The process keeps
the memory that it frees, as the commands let it do.
"""

import argparse
import os
import pathlib
import random
import tempfile
import time

import numpy as np

from benchmarks.input_pipeline import BATCH, SIZE, ours, peer, write_images
from benchmarks.turns import quartiles, take_turns

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
LAYERS, MAGNITUDE = 2, 10
PLAIN = {"crop": "inception", "flip": True}
RANDAUGMENT = {**PLAIN, "randaugment_layers": LAYERS, "randaugment_magnitude": MAGNITUDE}
POLICIES = {  # fields of `augment` by the name of a candidate
    "no policy": PLAIN,
    "RandAugment (2, 10)": RANDAUGMENT,
    "AutoAugment": {**PLAIN, "policy": "autoaugment"},
    "ColorJitter 0.4": {**PLAIN, "color_jitter": 0.4},
    "RandAugment and erasing 0.25": {**RANDAUGMENT, "erasing": 0.25},
}
MIXINGS = {
    "inception crop and flip": PLAIN,
    "with MixUp": {**PLAIN, "mixup_alpha": 0.2},
    "with CutMix": {**PLAIN, "cutmix_alpha": 1.0},
    "with both": {**PLAIN, "mixup_alpha": 0.8, "cutmix_alpha": 1.0},
    "RandAugment (2, 10)": RANDAUGMENT,
    "RandAugment with MixUp": {**RANDAUGMENT, "mixup_alpha": 0.2},
    "RandAugment with CutMix": {**RANDAUGMENT, "cutmix_alpha": 1.0},
}
HALF = "timm, rand-m10-n2: half of the steps"
TIMM = {  # arguments of timm's `create_transform`
    "timm, no policy": {"color_jitter": None},
    HALF: {"auto_augment": "rand-m10-n2"},
    "timm, rand-m10-n2-p1: all steps": {"auto_augment": "rand-m10-n2-p1"},
}


def timm_batches(paths, **arguments):
    """Yields batches of timm's transform, one picture after the other."""
    import torch
    from PIL import Image

    create_transform = peer("timm.data").create_transform
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    change = create_transform(SIZE[0], is_training=True, interpolation="bilinear", **arguments)
    for start in range(0, len(paths) - BATCH + 1, BATCH):
        pictures = [Image.open(path).convert("RGB") for path in paths[start : start + BATCH]]
        yield torch.stack([change(picture) for picture in pictures]).numpy()


def images_per_cpu_second(batches) -> float:
    """Goes through all batches once."""
    start = time.process_time()
    count = sum(1 for _ in batches)
    return count * BATCH / (time.process_time() - start)


def compare(candidates, rounds, first):
    """Prints each candidate's speed, and its ratio to the candidate named `first`."""
    measurements = {
        name: lambda made=made: images_per_cpu_second(made()) for name, made in candidates.items()
    }
    speeds = take_turns(measurements, rounds)
    for name, values in speeds.items():
        speed, ratio = np.median(values), quartiles(values / speeds[first])
        print(f"{name:<38} {speed:6.1f} images per CPU second   ratio {ratio}", flush=True)


def write_pictures(folder, count):
    """Writes JPEGs into `folder`; returns them as a split for training, and their paths."""
    from vit_keras import data
    from vit_keras.config import DataConfig

    write_images(pathlib.Path(folder), count)
    split = data.load(f"folder:{folder}", 3, DataConfig(test_percent=0)).split("train")
    return split, [split.name(i) for i in range(len(split))]


def our_steps(case):
    """`make` of a contender: each step goes once through the pictures by our pipeline."""
    from vit_keras.support import machine

    machine.keep_memory()

    def prepare(split, paths):
        made = ours(split, epochs=1, **POLICIES[case.size])
        return lambda: made

    return _steps(case, prepare)


def timm_steps(case):
    """As `our_steps`, by timm's transform."""
    return _steps(case, lambda split, paths: lambda: timm_batches(paths, **TIMM[HALF]))


def _steps(case, prepare):
    folder = tempfile.TemporaryDirectory()
    batches = prepare(*write_pictures(folder.name, case.batch))

    def step(count, folder=folder):  # a reference keeps the pictures
        for _ in range(count):
            for _ in batches():
                pass

    return step, 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mixing", action="store_true", help="time MixUp and CutMix")
    parser.add_argument("--images", type=int, default=320, help="number of pictures")
    parser.add_argument("--epochs", type=int, default=4, help="how often a turn takes each of them")
    parser.add_argument("--rounds", type=int, default=9, help="how many times all take turns")
    options = parser.parse_args()
    from vit_keras.support import machine

    machine.keep_memory()
    with tempfile.TemporaryDirectory() as folder:
        split, paths = write_pictures(folder, options.images)
        theirs = lambda arguments: lambda: timm_batches(paths * options.epochs, **arguments)
        fields = MIXINGS if options.mixing else POLICIES
        candidates = {} if options.mixing else {name: theirs(TIMM[name]) for name in TIMM}
        for name in fields:
            made = ours(split, epochs=options.epochs, threads=1, **fields[name])
            candidates[name] = lambda made=made: made
        first = next(iter(MIXINGS)) if options.mixing else HALF
        compare(candidates, options.rounds, first)


if __name__ == "__main__":
    main()
