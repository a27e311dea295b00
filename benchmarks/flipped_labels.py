"""How well `check --model RUN` finds wrong labels that the run itself has learned.

    KERAS_BACKEND=jax python -m benchmarks.flipped_labels --out /tmp/flipped

writes scikit-learn's digits as a folder of pictures, 5 % of them in the folder of another digit,
trains a run on it (the recipe `digits`; with `--memorize` without augmentation, until it gives all
wrong labels), and prints the average precision of the order in which `check` suspects the labels:
by the run's early features, as `check` does, by its last ones, and by the pixels alone.
"""

import argparse
import pathlib
import subprocess
import sys

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

from vit_keras import config, data, evaluation


def write_folder(folder, share, seed):
    """Writes the digits with a share of wrong labels, whose names begin with "wrong"."""
    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    wrong = np.zeros(len(labels), bool)
    wrong[rng.permutation(len(labels))[: round(share * len(labels))]] = True
    shown = np.where(wrong, (labels + rng.integers(1, 10, len(labels))) % 10, labels)
    for number, (image, label) in enumerate(zip(images, shown)):
        path = folder / str(label) / f"{'wrong' if wrong[number] else 'right'}_{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.kron(image.reshape(8, 8) * 15.9375, np.ones((2, 2)))
        Image.fromarray(pixels.astype("uint8")).save(path)


def measure(folder, run, seed):
    """Yields (features, average precision), as `check` computes them."""
    predictor, _ = evaluation.open_predictor(run)
    dataset = data.load(f"folder:{folder}", 1, config.Config().data, config.Config().task)
    splits = dataset.splits.values()
    pixels = [np.stack([split.read(i) for i in range(len(split))]) for split in splits]
    names = [split.name(i) for split in splits for i in range(len(split))]
    wrong = np.array(["wrong_" in name for name in names])
    features = {"pixels": np.concatenate(pixels).reshape(len(names), -1).astype("float32")}
    for name in ("feature_model", "early_features"):
        model = getattr(evaluation, name)(predictor.model)
        rows = [evaluation.predict(model, predictor.batches(split, 64)) for split in splits]
        features[name], labels = map(np.concatenate, zip(*rows))
    for name, x in features.items():
        probabilities = evaluation.cross_validated_probabilities(x, labels, seed)
        ranks = evaluation.suspicion(probabilities, labels)
        issues = evaluation.find_label_issues(probabilities, labels)
        right = sum(wrong[issue.number] for issue in issues)
        yield name, average_precision_score(wrong, ranks), len(issues), right, wrong.sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--memorize", action="store_true", help="train without augmentation")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder, run = options.out / "digits", options.out / "run"
    if not folder.exists():
        write_folder(folder, options.share, options.seed)
    line = ["train", "--config", "digits", "--dataset", f"folder:{folder}", "--workdir", run]
    steps = ["--total_steps", options.steps, "--seed", options.seed]
    if options.memorize:
        off = ["augment.rotation_degrees", "augment.scale", "augment.shift", "label_smoothing"]
        steps += [word for name in off for word in (f"--{name}", 0)]
    if not run.exists():
        subprocess.run([sys.executable, "-m", "vit_keras", *map(str, [*line, *steps])], check=True)
    for name, precision, listed, right, total in measure(folder, run, options.seed):
        print(
            f"{name}: average precision {precision:.3f}; {listed} labels listed, {right} of the "
            f"{total} wrong ones among them"
        )


if __name__ == "__main__":
    sys.exit(main())
