"""The saves of the package, each as a function that writes a value into a folder.

`SAVES` holds a row for each kind. A value is a number that decides the weights or the rows, so that
two values are two contents.
"""

import dataclasses
import functools
import hashlib
import pathlib
import zipfile
from collections.abc import Callable

import numpy as np
import pytest
import safetensors.numpy

from tests.training.halves import save_halves
from tests.training.small import small_config, small_model
from vit_keras import evaluation, retrieval, runs, weights
from vit_keras.exporting import manifest
from vit_keras.exporting.targets import Plan
from vit_keras.models import Preprocessing, VisionTransformer
from vit_keras.retrieval import embedder
from vit_keras.support import files
from vit_keras.training import checkpoints
from vit_keras.weights import download


@dataclasses.dataclass(frozen=True)
class Save:
    """A kind of save.

    Attributes:
        write: Writes a value into a folder.
        target: What an error names: a file or folder in that folder.
        apart: Whether it consists of several files or folders that are replaced one by one.
        stays: Endings of what an error may leave, since the next save goes on from it.
    """

    write: Callable[[pathlib.Path, int], None]
    target: str
    apart: bool = False
    stays: tuple[str, ...] = ()


@functools.cache
def _model(value):
    model = VisionTransformer(8, 4, 12, 1, 3, 20, 5, name="small")
    rng = np.random.default_rng(value)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape))
    return model


def _format(name, format=None):
    return Save(lambda folder, value: weights.save(_model(value), folder / name, format), name)


@functools.cache
def _trained():
    return small_model(small_config("."))


def _checkpoint(folder, value):
    """Checkpoint number `value`, of which one stays."""
    model = _trained()
    model.get_layer("head").bias.assign(np.full(3, value, "float32"))
    checkpoints.newest(folder)
    checkpoints.save(model, folder, value, keep=1)


def _checkpoint_of_two(folder, value):
    """Checkpoint number `value`, to which two processes add their parts."""
    model = _trained()
    model.get_layer("head").kernel.assign(np.full((16, 3), value, "float32"))
    checkpoints.newest(folder)
    save_halves(model, folder, value, keep=1)


def _metrics(folder, value):
    rows = [{"step": step, "val_loss": 1 / step} for step in range(1, value + 1)]
    runs.write_rows(folder, rows)


def _predictions(name, folder, value):
    probabilities = np.random.default_rng(value).dirichlet(np.ones(4), 50)
    evaluation.write_predictions(folder / name, probabilities, np.zeros(50, int))


def _embeddings(folder, value):
    """A job of two parts."""
    run = lambda images: np.full((len(images), 3), value, "float32")
    about = {"weights": "none", "shape": [3]}
    made = retrieval.Embedder(run, (4, 4, 3), (3,), Preprocessing(), about)
    pixels = np.zeros((4, 4, 3), "uint8")
    pictures = [retrieval.Picture(str(i)) for i in range(6)]
    listed = retrieval.PictureList(pictures, lambda number, path, channels: pixels)
    embedder.PART_ROWS = 4
    list(retrieval.EmbeddingJob(made, listed, folder / "table.parquet", batch=2).run())


def _export(folder, value):
    """The documents of an export; converting takes no part of the folder."""
    with files.replacing_folder(folder / "export") as new:
        weights.save_model(_model(value), new / "model.keras")
        plan, reference = Plan(formats=["onnx"]), {"images": value, "source": "none"}
        described = manifest.describe(_model(value), plan, reference, [])
        manifest.write_documents(new, _model(value), described)


def _run_folder(folder, value):
    del value  # a run stays the same
    runs.open_run(small_config(folder))


def _download(folder, value):
    """A published file from the loopback server of the process, which serves one version."""
    from tests.loopback import FileServer
    from tests.weights.builds import FILES, PUBLISHED

    del value
    with FileServer(FILES).running() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv(download.MIRROR, server.url)
        patch.setenv("no_proxy", "*")
        weights.fetch(PUBLISHED, cache_dir=folder, retries=0)


SAVES = {
    "text": Save(lambda folder, value: files.write_text(folder / "a.json", "x" * value), "a.json"),
    "checkpoint of two": Save(_checkpoint_of_two, "step_0", apart=True, stays=("-00001.npz",)),
    "metrics": Save(_metrics, "metrics", apart=True),
    "run folder": Save(_run_folder, "", apart=True),
    "checkpoint": Save(_checkpoint, "step_0", apart=True),
    ".keras": _format("model.keras"),
    ".weights.h5": _format("model.weights.h5"),
    ".npz": _format("model.npz", "google"),
    ".safetensors": _format("model.safetensors", "timm"),
    ".pth": _format("model.pth", "timm"),
    "Hugging Face folder": _format("folder", "huggingface"),
    "export folder": Save(_export, "export"),
    "predictions .csv": Save(functools.partial(_predictions, "a.csv"), "a.csv"),
    "predictions .parquet": Save(functools.partial(_predictions, "a.parquet"), "a.parquet"),
    "embeddings": Save(_embeddings, "table.parquet", stays=(".parts",)),
    "download": Save(_download, "ViT-B_16.npz"),
}


def contents(folder: pathlib.Path) -> dict[str, str]:
    """A digest of each visible file under a folder, without dates and orders that change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not any(part.startswith(".") for part in pathlib.Path(name).parts):
            found[name] = _digest(path)
    return found


def _digest(path):
    data = path.read_bytes()
    if zipfile.is_zipfile(path) and path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name != "metadata.json"]
            data = b"".join(name.encode() + archive.read(name) for name in sorted(names))
    if path.suffix == ".safetensors":  # their order changes
        arrays = sorted(safetensors.numpy.load(data).items())
        data = b"".join(name.encode() + array.tobytes() for name, array in arrays)
    return hashlib.sha256(data).hexdigest()


def hidden(folder: pathlib.Path) -> set[str]:
    """What lies under a folder besides `contents`."""
    paths = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return paths - set(contents(folder))
