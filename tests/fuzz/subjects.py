"""Tiny valid files of every container and format that is read, to be damaged."""

import contextlib
import dataclasses
import pathlib
import warnings
from collections.abc import Callable

import keras
import numpy as np

import vit_keras
from tests.fuzz import damage
from tests.fuzz.data_subjects import DATA
from tests.fuzz.pictures import PICTURES, forge_picture
from tests.fuzz.run_subjects import RUN_FILES
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
        beyond: The bytes of memory that opening may take besides four times the file: for parsers,
            and what is read before a contradiction is seen. `containers.checks` has the limits.
        quick: Whether opening takes some milliseconds, since no model is built.
    """

    make: Callable[[np.random.Generator, pathlib.Path], None]
    path: str
    open: Callable[[pathlib.Path], list]
    checked: bool = False
    beyond: int = 2**28
    quick: bool = False

    @property
    def forge(self) -> Callable[[pathlib.Path, np.random.Generator], tuple[str, bool]] | None:
        """Forges a field; returns the change in words, and whether the file may be valid then."""
        if self.path.endswith(".picture"):
            return forge_picture
        has_fields = self.path.endswith((".safetensors", ".keras", ".json", ".yaml"))
        return damage.forged if has_fields or "." not in self.path else None


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
    model = vit_keras.open(path)
    try:
        return said(model) + open_weights(path)
    except TypeError as error:  # Keras builds some layers that cannot be called, as it is told to
        raise ValueError(f"{path}: {error}") from error


def _subject(name, build, format, open_, *checked, make=_saved):
    return Subject(make(build, name, format), name, open_, *checked)


VIT = vision_transformer
SUBJECTS: dict[str, Subject] = {
    "google .npz": _subject("a.npz", VIT, "google", _two_heads, True),
    "bit .npz": _subject("a.npz", resnet, "bit", open_weights, True),
    "texts .npz": Subject(_make_texts, "a.npz", _open_texts, True),
    "timm .safetensors": _subject("a.safetensors", VIT, "timm", open_weights, True),
    "adapters .safetensors": Subject(_make_adapters, "a.safetensors", _open_adapters, True),
    "timm .pth": _subject("a.pth", VIT, "timm", _two_heads, True),
    "torchvision .pth": _subject("a.pth", VIT, "torchvision", _two_heads, True),
    "huggingface .bin": _subject("a.bin", VIT, "huggingface", _two_heads, True),
    "huggingface folder": _subject("a", VIT, "huggingface", open_weights),
    **{
        f"{format} folder, foreign": _subject("a", build, format, open_weights, make=_without_note)
        for format, build in (("huggingface", VIT), ("timm", VIT), ("open_clip", _clip))
    },
    "keras_hub folder": _subject("a", VIT, "keras_hub", open_weights),
    "keras_hub .weights.h5": _subject("a.weights.h5", VIT, "keras_hub", _of_class_token, True),
    "vit_keras .weights.h5": _subject("a.weights.h5", VIT, None, _two_heads_exact, True),
    "vit_keras .keras": _subject("a.keras", VIT, None, _open_keras, True),
    "resnet .keras": _subject("a.keras", resnet, None, _open_keras, True),
    **{name: Subject(*row) for name, row in DATA.items()},
    **{name: Subject(*row, quick=True) for name, row in RUN_FILES.items()},
    **{  # with 16 bytes for each pixel of Pillow's bound
        name: Subject(*row, beyond=3 * 2**29, quick=True) for name, row in PICTURES.items()
    },
}


def made(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Writes the valid files of a subject; returns the path that is opened."""
    folder.mkdir(parents=True, exist_ok=True)
    SUBJECTS[name].make(np.random.default_rng(11), folder)
    keras.utils.clear_session()
    return folder / SUBJECTS[name].path
