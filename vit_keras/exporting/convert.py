"""A process of its own with the TensorFlow backend: `python -m ...convert MODEL FOLDER IMAGES`.

TensorFlow's converters take models of TensorFlow alone, so a model that another backend trained is
opened again here from its `.keras` file. What the files then answer in their own runtimes to the
images of IMAGES (.npy, uint8) is written to FOLDER/outputs.npz.
"""

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

from vit_keras.exporting.serving import serving_model
from vit_keras.weights import open_model


def run_saved_model(folder: pathlib.Path, images: np.ndarray) -> np.ndarray:
    """Probabilities of a SavedModel, loaded by TensorFlow without Keras."""
    loaded = tf.saved_model.load(str(folder))
    return loaded.serve(images).numpy()


def run_tflite(path: pathlib.Path, images: np.ndarray) -> np.ndarray:
    """Probabilities of a TFLite file in LiteRT's interpreter, image by image."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    interpreter.allocate_tensors()
    source, target = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    outputs = []
    for image in images:
        interpreter.set_tensor(source["index"], image[None])
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(target["index"]))
    return np.concatenate(outputs)


def main(model_file: str, folder: str, images_file: str) -> None:
    folder, images = pathlib.Path(folder), np.load(images_file, allow_pickle=False)
    model = serving_model(open_model(model_file))
    model.export(folder / "saved_model", format="tf_saved_model", verbose=False)
    # One image at a time: a dynamic batch would split the phone's delegate into many parts.
    signature = [keras.InputSpec(shape=(1, *model.input_shape[1:]), dtype="uint8", name="images")]
    model.export(folder / "model.tflite", format="litert", input_signature=signature, verbose=False)
    outputs = {
        "saved_model": run_saved_model(folder / "saved_model", images),
        "model.tflite": run_tflite(folder / "model.tflite", images),
    }
    np.savez(folder / "outputs.npz", **outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
