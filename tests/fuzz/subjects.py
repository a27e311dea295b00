"""Tiny valid files of every container and format that is read, to be damaged."""

import contextlib
import dataclasses
import pathlib
import shutil
import warnings
from collections.abc import Callable

import keras
import numpy as np

import vit_keras
from tests.fuzz.data_subjects import DATA
from tests.helpers import randomize, to_numpy
from vit_keras import weights
from vit_keras.models import ResNet, VisionTransformer, add_lora, preprocessing_of, resizing_of
from vit_keras.models.description import task_of

NAMES = ("cat", "dog", "owl")
SIZES = {"hidden_size": 6, "num_layers": 1, "num_heads": 2, "mlp_dim": 5}
IMAGES = np.random.default_rng(5).normal(size=(2, 8, 8, 3)).astype("float32")


def vision_transformer(rng, **changes):
    model = VisionTransformer(8, 4, **{**SIZES, "num_classes": 3, **changes})
    model.class_names = list(NAMES) if model.output_shape[-1] == 3 else None
    return randomize(model, rng)


def resnet(rng):
    return randomize(ResNet(8, (1,), 0.5, num_classes=3), rng)


@dataclasses.dataclass(frozen=True)
class Subject:
    """A kind of file that is damaged.

    Attributes:
        make: Takes a generator and a folder; writes the files into the folder.
        path: Where the file or folder is that is opened, relative to the folder.
        open: Takes the path that is opened; returns what the file says, to be compared.
        checked: Whether some checksum covers all of the file, so that no flip may be wrong.
    """

    make: Callable[[np.random.Generator, pathlib.Path], None]
    path: str
    open: Callable[[pathlib.Path], list]
    checked: bool = False


@contextlib.contextmanager
def quiet():
    """Lets no warning out, where valid files are written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def said(model) -> list:
    """What a model computes for some images, and what it says of itself."""
    described = (preprocessing_of(model), resizing_of(model), task_of(model))
    names = getattr(model, "class_names", None)
    outputs = to_numpy(model(IMAGES, training=False)).tobytes()
    return [outputs, *map(str, described), None if names is None else tuple(names)]


def open_weights(path: pathlib.Path, **overrides) -> list:
    weights.describe(path)
    return said(vit_keras.open(path, **overrides))


def _of_class_token(path):
    return open_weights(path, classifier="token")


def _saved(build, name, format=None):
    def make(rng, folder):
        with quiet():
            weights.save(build(rng), folder / name, format=format)

    return make


def _without_note(build, name, format):
    """As other projects' own files are: no note tells what the model is."""

    def make(rng, folder):
        from safetensors.numpy import load_file, save_file

        _saved(build, name, format)(rng, folder)
        path = next((folder / name).glob("*.safetensors"))
        save_file(load_file(path), path)

    return make


def _clip(rng):
    changes = {"pre_norm": True, "gelu": "quick", "head_use_bias": False, "num_classes": 4}
    return vision_transformer(rng, **changes)


def _make_adapters(rng, folder):
    model = vision_transformer(rng)
    with quiet():
        weights.save(model, folder / "base.npz", format="google")
        adapted = vit_keras.open(folder / "base.npz", num_heads=2)
    adapted.class_names = list(NAMES)
    with_adapters = add_lora(adapted, rank=2)
    for weight in with_adapters.trainable_variables:
        weight.assign(rng.normal(size=weight.shape))
    weights.save_adapters(with_adapters, folder / "a.safetensors", base="base.npz")


def _open_adapters(path):
    weights.describe_adapters(path)
    return said(vit_keras.open(path.with_name("base.npz"), adapters=path))


def _make_texts(rng, folder):
    texts = weights.TextEmbeddings(NAMES, rng.normal(size=(3, 4)), scale=100.0, model="clip")
    weights.write_text_embeddings(folder / "a.npz", texts)


def _open_texts(path):
    texts = weights.read_text_embeddings(path)
    return [texts.embeddings.tobytes(), texts.labels, texts.scale, texts.bias, texts.kind]


def _two_heads(path):
    return open_weights(path, num_heads=2)


def _two_heads_exact(path):
    return open_weights(path, num_heads=2, gelu="exact")


def _open_keras(path):
    return said(vit_keras.open(path)) + open_weights(path)


VIT, HUGGING = vision_transformer, "model.safetensors"
SUBJECTS: dict[str, Subject] = {
    "google .npz": Subject(_saved(VIT, "a.npz", "google"), "a.npz", _two_heads, True),
    "bit .npz": Subject(_saved(resnet, "a.npz", "bit"), "a.npz", open_weights, True),
    "texts .npz": Subject(_make_texts, "a.npz", _open_texts, True),
    "timm .safetensors": Subject(
        _saved(VIT, "a.safetensors", "timm"), "a.safetensors", open_weights, True
    ),
    "adapters .safetensors": Subject(_make_adapters, "a.safetensors", _open_adapters, True),
    "timm .pth": Subject(_saved(VIT, "a.pth", "timm"), "a.pth", _two_heads, True),
    "torchvision .pth": Subject(_saved(VIT, "a.pth", "torchvision"), "a.pth", _two_heads, True),
    "huggingface .bin": Subject(_saved(VIT, "a.bin", "huggingface"), "a.bin", _two_heads, True),
    "huggingface folder": Subject(_saved(VIT, "a", "huggingface"), "a", open_weights),
    "huggingface folder, foreign": Subject(
        _without_note(VIT, "a", "huggingface"), "a", open_weights
    ),
    "timm folder, foreign": Subject(_without_note(VIT, "a", "timm"), "a", open_weights),
    "open_clip folder, foreign": Subject(_without_note(_clip, "a", "open_clip"), "a", open_weights),
    "keras_hub folder": Subject(_saved(VIT, "a", "keras_hub"), "a", open_weights),
    "keras_hub .weights.h5": Subject(
        _saved(VIT, "a.weights.h5", "keras_hub"), "a.weights.h5", _of_class_token, True
    ),
    "vit_keras .weights.h5": Subject(
        _saved(VIT, "a.weights.h5"), "a.weights.h5", _two_heads_exact, True
    ),
    "vit_keras .keras": Subject(_saved(VIT, "a.keras"), "a.keras", _open_keras, True),
    "resnet .keras": Subject(_saved(resnet, "a.keras"), "a.keras", _open_keras, True),
    **{name: Subject(*row) for name, row in DATA.items()},
}


def made(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Writes the valid files of a subject; returns the path that is opened."""
    folder.mkdir(parents=True, exist_ok=True)
    SUBJECTS[name].make(np.random.default_rng(11), folder)
    keras.utils.clear_session()
    return folder / SUBJECTS[name].path


def copied(folder: pathlib.Path, to: pathlib.Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
