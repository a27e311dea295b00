"""Reading weights from our own files into a built model."""

import os

import keras

SUFFIXES = (".keras", ".weights.h5")


def load(model: keras.Model, path: str | os.PathLike) -> keras.Model:
    """Copies the weights of a `.keras` or `.weights.h5` file into `model`, and returns it.

    Raises FileNotFoundError where there is no such file, ValueError where it is no such file or
    does not fit; `.keras` files are compared by name and shape, and all differences are listed.
    """
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no file of weights at {path!r}.")
    if path.endswith(".weights.h5"):
        model.load_weights(path)
    elif path.endswith(".keras"):
        copy_by_path(open_model(path), model, path)
    else:
        raise ValueError(f"Weights are read from {' or '.join(SUFFIXES)} files. Received: {path!r}")
    return model


def open_model(path: str | os.PathLike, compile: bool = False) -> keras.Model:
    """The model in a `.keras` file, ready to train on with `compile=True`.

    FileNotFoundError where there is none, ValueError with its path where it is corrupt.
    """
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no model file at {path!r}.")
    try:
        return keras.saving.load_model(path, compile=compile)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(
            f"{path!r} cannot be read as a Keras model: it is corrupt, incomplete, or needs layers "
            f"that are not imported ({reason})"
        ) from error


def copy_by_path(source: keras.Model, target: keras.Model, origin: str) -> None:
    """Assigns each weight of `source` to the one of the same path in `target`, all or none."""
    old = {weight.path: weight for weight in source.weights}
    new = {weight.path: weight for weight in target.weights}
    faults = [f"missing in the file: {name}" for name in new if name not in old]
    faults += [f"not in the model: {name}" for name in old if name not in new]
    faults += [
        f"{name} is {tuple(old[name].shape)} in the file, {tuple(new[name].shape)} in the model"
        for name in new
        if name in old and old[name].shape != new[name].shape
    ]
    if faults:
        raise ValueError(
            f"{origin!r} does not fit model {target.name!r}:\n  " + "\n  ".join(faults)
        )
    for name, weight in new.items():
        weight.assign(old[name].value)


def save_model(model: keras.Model, path: str | os.PathLike) -> None:
    """Writes a `.keras` file whole or not at all: beside it under another name, then renamed."""
    path = os.fspath(path)
    if not path.endswith(".keras"):
        raise ValueError(f"A model is saved to a path that ends in .keras. Received: {path!r}")
    partial = f"{path.removesuffix('.keras')}.partial.keras"
    try:
        model.save(partial)
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)
