"""A fuzzer that looks for new paths through the readers of one format, with Atheris.

    pip install atheris   # 3.0 for Python 3.11; neither the project nor its tests need it
    KERAS_BACKEND=torch python -m tests.fuzz.guided "google .npz" -max_total_time=600

The name is a subject of `tests.fuzz.subjects`; what follows goes to libFuzzer. Of a folder, each
input is its `config.json`. A refusal is fine, and any other exception ends the run with the input
in `crash-...`. The last lines say how many inputs were tried and how many paths ("cov", "ft") they
reached.
"""

import os
import pathlib
import sys
import tempfile

import atheris

from vit_keras import layers, models  # noqa: F401  (with Keras and NumPy, which are not followed)

with atheris.instrument_imports(include=["vit_keras.weights", "vit_keras.support.checks"]):
    from vit_keras.weights import weight_file
    from vit_keras.weights.containers.checks import check_tensors

from tests.fuzz import subjects
from tests.fuzz.cases import BELOW, REFUSALS


def read(path: pathlib.Path) -> None:
    """Reads all tensors of a file, and what it says of its model, which is not built."""
    with weight_file.open_weight_file(path) as file:
        check_tensors(file.tensors, ())
        _ = file.arguments, file.numerics


def main() -> None:
    folder = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))
    os.environ["KERAS_HOME"] = str(folder)
    path = subjects.made(sys.argv[1], folder / "valid")
    target = path / "config.json" if path.is_dir() else path
    (corpus := folder / "corpus").mkdir()
    (corpus / "valid").write_bytes(target.read_bytes())

    def once(data: bytes) -> None:
        target.write_bytes(data)
        try:
            read(path)
        except REFUSALS as error:
            if isinstance(error, BELOW) or type(error).__module__ == "json.decoder":
                raise

    atheris.Setup([sys.argv[0], str(corpus), "-max_len=100000", *sys.argv[2:]], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
