"""Runs in another backend's process: `python -m tests.worker FOLDER`.

For every `*.keras` in FOLDER: its outputs for `images.npy`, then one update more and a file of the
result. Also the initial weights that a seed gives here. All goes to `from_BACKEND.npz`.
"""

import pathlib
import sys

import keras
import numpy as np

import vit_keras  # noqa: F401 - the only thing that a file of ours needs
from tests.helpers import initial_weights, to_numpy


def main(folder):
    images, found = np.load(folder / "images.npy"), {}
    backend = keras.backend.backend()
    for path in sorted(folder.glob("*.keras")):
        model = keras.saving.load_model(path, safe_mode=True)
        model.jit_compile = backend == "jax"  # elsewhere compiling takes longer than it saves
        found[f"{path.stem}/outputs"] = model.predict(images, verbose=0)
        before = to_numpy(model.weights[0].value)
        iterations = int(to_numpy(model.optimizer.iterations.value))
        loss = model.train_on_batch(images, np.arange(len(images)) % 5)
        found[f"{path.stem}/loss"] = np.asarray(loss, "float64")
        found[f"{path.stem}/moved"] = np.abs(to_numpy(model.weights[0].value) - before).max()
        found[f"{path.stem}/iterations"] = iterations
    found |= {f"initial/{name}": value for name, value in initial_weights().items()}
    np.savez(folder / f"from_{backend}.npz", **found)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
