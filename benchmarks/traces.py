"""Counts how often control changes from one file of the package to another.

    KERAS_BACKEND=torch python -m benchmarks.traces
    KERAS_BACKEND=torch python -m benchmarks.traces --files

A reader who follows a call goes the same way. A change of file is a call or a return in another
file of `vit_keras` than the one before. Imports are counted in empty processes.
"""

import argparse
import collections
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

ROOM = "/vit_keras/"


def changes(call: Callable[[], object]) -> collections.Counter[tuple[str, str]]:
    """How often each pair of files follows one another in a call."""
    last, pairs = None, collections.Counter()

    def look(frame, event, _):
        nonlocal last
        name = frame.f_code.co_filename
        if event not in ("call", "return") or ROOM not in name:
            return
        if last not in (None, name):
            pairs[last, name] += 1
        last = name

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return pairs


def journeys(folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """What a user does, ready to be called: a name and a call."""
    import keras
    import numpy as np

    import vit_keras
    from vit_keras import models, weights

    model = models.from_variant("Ti/16", image_size=224, num_classes=10, seed=0)
    images = np.zeros((1, 224, 224, 3), "float32")
    for _ in range(2):
        model.predict(images, verbose=0)
    yield "predict, one picture of Ti/16", lambda: model.predict(images, verbose=0)
    path = folder / "huggingface"
    small = models.from_variant("Ti/16", image_size=224, num_classes=10, num_layers=2, seed=0)
    weights.save(small, path, "huggingface")
    yield "open a folder of transformers", lambda: vit_keras.open(path)
    small.compile("adamw", keras.losses.CategoricalCrossentropy(from_logits=True))
    batch = np.zeros((2, 224, 224, 3), "float32"), np.eye(10)[:2]
    for _ in range(2):
        small.train_on_batch(*batch)
    yield "a training step of two blocks", lambda: small.train_on_batch(*batch)


COUNT = """
import atexit, os, runpy, sys
def count(*status, leave=os._exit):
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    print(chr(10), sum("/vit_keras/" in file for file in files), flush=True)
    leave(*status) if status else None
os._exit = count  # by which a command ends
atexit.register(count)
"""


def files_of(code: str) -> int:
    """The files of the package that a process of Python loads."""
    command = [sys.executable, "-c", COUNT + code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def imports(folder: pathlib.Path) -> dict[str, str]:
    """Returns code to run in a fresh process, by name."""
    import numpy as np
    from PIL import Image

    from vit_keras import models
    from vit_keras.exporting import export

    model = models.from_variant("mu/16", image_size=32, num_classes=3, seed=0)
    export(model, folder / "export", formats=("litert",), precisions=("fp32",))
    Image.fromarray(np.zeros((40, 40, 3), "uint8")).save(folder / "picture.png")
    (file,) = (folder / "export").glob("*.tflite")
    arguments = ["vit-keras", "predict", str(file), str(folder / "picture.png")]
    command = f"sys.argv = {arguments}; runpy.run_module('vit_keras', None, '__main__')"
    return {
        "import vit_keras": "import vit_keras",
        "import vit_keras.applications": "import vit_keras.applications",
        "predict x.tflite": command,
    }


def main(show_files: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for title, call in journeys(folder):
            pairs = changes(call)
            files = {file.split(ROOM)[1] for pair in pairs for file in pair}
            print(f"{title}: {pairs.total()} changes, {len(files)} files", flush=True)
            for pair, times in pairs.most_common(25 if show_files else 0):
                print(f"  {times:5}", " -> ".join(file.split(ROOM)[1] for file in pair))
        for title, code in imports(folder).items():
            print(f"{title}: {files_of(code)} files loaded", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", action="store_true", help="show the commonest pairs of files")
    main(parser.parse_args().files)
