"""Logits and gradients of every design: `KERAS_BACKEND=torch python -m tests.golden.designs`.

The gradient of a variable is stored as its product with a random vector. The committed file was
computed on torch, and the tests compare each backend with it.
"""

import pathlib

import keras
import numpy as np

from tests.designs import DESIGNS, images_for, random_design
from tests.helpers import to_numpy, weights_by_path

FILE = pathlib.Path(__file__).with_name("designs.npz")


def measure(name: str) -> tuple[np.ndarray, dict[str, float]]:
    """Returns logits `(2, 3)`, and each variable's gradient times a random vector, by path."""
    model = random_design(name)
    images = images_for(model)
    logits = to_numpy(model(images))
    before = weights_by_path(model)
    model.compile(keras.optimizers.SGD(1.0), "mse")
    targets = np.random.default_rng(7).normal(size=(2, 3)).astype("float32")
    model.train_on_batch(images, targets)
    rng = np.random.default_rng(8)
    products = {}
    for path, value in weights_by_path(model).items():
        gradient = before[path].astype("float64") - value
        products[path] = (gradient * rng.normal(size=gradient.shape)).sum()
    return logits, products


def main() -> None:
    arrays = {}
    for name in DESIGNS:
        arrays[f"{name}/logits"], products = measure(name)
        arrays[f"{name}/products"] = np.array(list(products.values()))
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main()
