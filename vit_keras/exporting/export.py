"""SavedModel and TFLite files of a model, compared with Keras before they are handed over."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

import keras
import numpy as np

from vit_keras.exporting.serving import serving_model
from vit_keras.weights import save_model


class Parity(NamedTuple):
    """How far a file's probabilities lie from those of Keras, at most, over some images."""

    file: str
    difference: float
    images: int


def export(
    model: keras.Model, folder: str | os.PathLike, images: np.ndarray, class_names: list[str]
) -> list[Parity]:
    """Writes `saved_model/`, `model.tflite` and `labels.txt` into `folder`; returns their parity.

    The files take uint8 images and give probabilities. `images` `(N, H, W, C)` uint8 go through
    Keras on this backend and through each file in its own runtime. The folder is put in place
    whole, in the stead of an earlier one. RuntimeError with the converter's words where it fails.
    """
    folder = pathlib.Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    expected = np.asarray(serving_model(model).predict(images, verbose=0))
    partial = pathlib.Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
    try:
        with tempfile.TemporaryDirectory() as scratch:
            save_model(model, f"{scratch}/model.keras")
            np.save(f"{scratch}/images.npy", images)
            _convert(f"{scratch}/model.keras", partial, f"{scratch}/images.npy")
        with np.load(partial / "outputs.npz", allow_pickle=False) as outputs:
            parity = [
                Parity(name, float(np.abs(outputs[name] - expected).max()), len(images))
                for name in outputs.files
            ]
        (partial / "outputs.npz").unlink()
        (partial / "labels.txt").write_text("".join(f"{name}\n" for name in class_names))
        partial.chmod(0o755)
        _replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return parity


def _convert(model_file, folder, images_file):
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    package = pathlib.Path(__file__).parents[2]
    path = [str(package), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    command = [sys.executable, "-m", "vit_keras.exporting.convert", model_file, folder, images_file]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"The export failed:\n{done.stderr[-3000:]}")


def _replace(new: pathlib.Path, old: pathlib.Path) -> None:
    """Puts a folder in another's place; the old one goes only once the new one is there."""
    if not old.exists():
        os.replace(new, old)
        return
    aside = old.with_name(f".old-{old.name}-{os.getpid()}")
    os.replace(old, aside)
    os.replace(new, old)
    shutil.rmtree(aside)
