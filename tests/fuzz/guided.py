"""A fuzzer that looks for new paths through the readers of one format, with Atheris.

    pip install atheris   # 3.0 for Python 3.11; neither the project nor its tests need it
    KERAS_BACKEND=torch python -m tests.fuzz.guided npz -max_total_time=600

The name is a key of `TARGETS`; what follows goes to libFuzzer. Each input is read as a file of that
kind. A refusal is fine, and any other exception ends the run with the input in `crash-...`. The
last lines say how many inputs were tried and how many paths ("cov", "ft") they reached.
"""

import contextlib
import os
import pathlib
import sys
import tempfile

import atheris

from vit_keras import layers, models  # noqa: F401  (with Keras and NumPy, which are not followed)

with atheris.instrument_imports(include=["vit_keras.weights", "vit_keras.support.checks"]):
    from vit_keras.weights import weight_file
    from vit_keras.weights.containers import READERS
    from vit_keras.weights.containers.checks import check_tensors, parse_json
    from vit_keras.weights.formats import registry

from tests.fuzz import subjects
from tests.fuzz.outcomes import BELOW, REFUSALS

# The kind of file, and the valid file that the search starts from.
TARGETS = {
    "npz": ("a.npz", "google .npz"),
    "safetensors": ("a.safetensors", "timm .safetensors"),
    "pth": ("a.pth", "timm .pth"),
    "h5": ("a.weights.h5", "vit_keras .weights.h5"),
    "keras": ("a.keras", "vit_keras .keras"),
    "note": ("a.safetensors", "timm .safetensors"),
    "config": ("config.json", "huggingface folder, foreign"),
}
FOLDER = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))


def read(path: pathlib.Path) -> None:
    """Opens a file as its name says, and reads all its tensors."""
    reader = next(READERS[end] for end in READERS if path.name.endswith(end))
    with contextlib.closing(reader(str(path))) as tensors:
        check_tensors(str(path), tensors, ())
        for name in tensors.shapes:
            tensors.read(name)


def read_note(text: bytes) -> None:
    """Reads a note as the one of a safetensors file."""
    names = dict.fromkeys(SHAPES)
    held = type("Held", (), {"shapes": SHAPES, "metadata": {"vit_keras": text}})()
    file = weight_file.WeightFile("a.safetensors", held, registry.FORMATS["timm"], names, {})
    file.names = {name: name for name in names}
    _ = file.arguments, file.numerics


def read_config(text: bytes) -> None:
    """Reads a configuration as the one beside a file of transformers."""
    path = FOLDER / "config.json"
    path.write_bytes(text)
    config = weight_file.read_config(str(FOLDER))
    held = type("Held", (), {"shapes": SHAPES, "metadata": {}})()
    names = {name: name for name in SHAPES}
    row = registry.FORMATS["huggingface"]
    file = weight_file.WeightFile(str(path), held, row, names, config)
    _ = file.arguments, file.numerics


SHAPES: dict[str, tuple[int, ...]] = {}


def _seed(name: str, corpus: pathlib.Path) -> None:
    """Writes what the search starts from."""
    file, subject = TARGETS[name]
    with contextlib.redirect_stdout(None):
        path = subjects.made(subject, FOLDER / "valid")
    with weight_file.open_weight_file(path) as opened:
        SHAPES.update(opened.shapes)
        note = opened.tensors.metadata.get("vit_keras", "{}")
    content = note.encode() if name == "note" else (path / file if path.is_dir() else path)
    corpus.mkdir(exist_ok=True)
    data = content if isinstance(content, bytes) else content.read_bytes()
    assert parse_json(data, name) if name in ("note", "config") else data
    (corpus / "valid").write_bytes(data)


def main() -> None:
    name = sys.argv[1]
    corpus = FOLDER / "corpus"
    os.environ["KERAS_HOME"] = str(FOLDER)
    _seed(name, corpus)
    readers = {"note": read_note, "config": read_config}
    target = FOLDER / TARGETS[name][0]

    def once(data: bytes) -> None:
        try:
            if name in readers:
                readers[name](data)
            else:
                target.write_bytes(data)
                read(target)
        except REFUSALS as error:
            if isinstance(error, BELOW) or type(error).__module__ == "json.decoder":
                raise

    atheris.Setup([sys.argv[0], str(corpus), "-max_len=100000", *sys.argv[2:]], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
