"""Our own `.keras` and `.weights.h5` files, of any model.

Keras numbers the variables of each layer: `head/kernel` is `head/0`. A `.keras` file says also how
the model computes; a `.weights.h5` does not, and leaves the model's numerics as they are.
"""

import dataclasses
import os
import re
import zipfile

import keras

from vit_keras.layers import PatchEmbedding
from vit_keras.models import with_image_size
from vit_keras.weights.architectures import resnet as stems
from vit_keras.weights.architectures import vision_transformer as architecture
from vit_keras.weights.containers.keras_h5 import KERAS_CONFIG
from vit_keras.weights.containers.tensors import check_claim
from vit_keras.weights.formats.base import Format, Link, same
from vit_keras.weights.numerics import Numerics


@dataclasses.dataclass(frozen=True)
class Layout:
    """A model's variables, `(name in the file, path)`, and its grid of patches if it has one."""

    variables: tuple[tuple[str, str], ...]
    classifier: str | None
    grid: tuple[int, int] | None


def describe(model: keras.Model) -> Layout:
    """The layout of any model."""
    variables = tuple(_numbered(model))
    classifier = "token" if any(path == "cls/cls" for _, path in variables) else None
    return Layout(variables, classifier, _grid(model))


def _grid(model):
    """Rows and columns of the patches of `model` or of a model in it; None without patches."""
    for layer in model.layers:
        if isinstance(layer, PatchEmbedding):
            return layer.grid(layer.input.shape[1:3])
        if isinstance(layer, keras.Model) and (grid := _grid(layer)):
            return grid
    return None


def _numbered(model, prefix=""):
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _numbered(layer, f"{prefix}{layer.name}/")
            continue
        counts = {}
        for variable in layer.weights:
            parts = variable.path.split("/")[:-1]
            outer = parts.index(layer.name) if layer.name in parts else 0
            owner = "/".join(parts[outer:])
            counts[owner] = counts.get(owner, -1) + 1
            yield f"{prefix}{owner}/{counts[owner]}", variable.path


def detect(names: set[str]) -> bool:
    return all(re.search(r"/\d+$", name) for name in names)


def links(layout: Layout, names=None) -> list[Link]:
    return [same(theirs, ours) for theirs, ours in layout.variables]


def infer(shapes: dict, config: dict) -> dict:
    if "root_block/conv_root/0" in shapes:
        return {**_resnet(shapes, "root_block/"), "num_classes": shapes.get("head/0", (None,))[-1]}
    height, width, channels, hidden_size = shapes["embedding/0"]
    block = "encoderblock_0"
    token, pooled = "cls/0" in shapes, "MAPHead_0/0" in shapes
    found = {
        "patch_size": (height, width),
        "channels": channels,
        "hidden_size": hidden_size,
        "num_layers": architecture.count(shapes, "encoderblock_"),
        "num_heads": shapes[f"{block}/MultiHeadDotProductAttention_1/query/0"][1],
        "mlp_dim": shapes[f"{block}/MlpBlock_3/Dense_0/0"][1],
        "num_classes": shapes.get("head/0", (None,))[-1],
        "representation_size": shapes.get("pre_logits/0", (None,))[-1],
    }
    if token or pooled:  # the mean before or after the last norm has the same names
        found["classifier"] = "token" if token else "map"
    found |= _resnet(shapes, "") if "conv_root/0" in shapes else {}
    positions, stages = _positions(shapes), found.get("resnet_layers")
    found |= architecture.guess_image_size(positions, (height, width), token, stages)
    inputs = config.get(KERAS_CONFIG, {}).get("layers", [{}])[0].get("config", {})
    shape = inputs.get("batch_shape", inputs.get("batch_input_shape"))
    return {**found, **({"image_size": tuple(shape[1:3])} if shape else {})}


def _positions(shapes):
    """How many learned positions there are."""
    shape = shapes.get("posembed_input/0", ())
    if len(shape) != 3:
        raise ValueError(
            "A .weights.h5 file does not say which position embeddings its model has, other than "
            "learned ones that are added once. Build the model and load the file into it with "
            "vit_keras.weights.load(model, path), or save a .keras file, which holds its model"
        )
    return shape[1]


def _resnet(shapes, root):
    *_, channels, width = shapes[f"{root}conv_root/0"]
    return {
        "resnet_layers": stems.count_units(shapes, r"^block(\d+)/unit(\d+)/conv1/"),
        "resnet_width": width / stems.WIDTH,
        "channels": channels,
    }


def numerics(config: dict) -> Numerics | None:
    """What the `.keras` file's config says."""
    model = config.get(KERAS_CONFIG, {})
    blocks = [
        layer["config"]
        for layer in model.get("layers", [])
        if layer["class_name"] in ("EncoderBlock", "MAPHead")
    ]
    if "preprocessing" not in model:
        return None
    named = {layer["name"]: layer["config"] for layer in model["layers"]}
    block = blocks[0] if blocks else {}
    stem = {
        "standardization": named.get("conv_root", {}).get("standardization"),
        "group_norm_epsilon": named.get("gn_root", {}).get("epsilon"),
    }
    computation = {key: block.get(key) for key in ("gelu", "layer_norm_epsilon")} | stem
    return Numerics.from_json(
        {
            **{key: value for key, value in computation.items() if value is not None},
            "preprocessing": model["preprocessing"],
            "class_names": model["class_names"],
        }
    )


FORMAT = Format(
    name="vit_keras",
    suffixes=(".weights.h5",),
    detect=detect,
    infer=infer,
    links=links,
    numerics=numerics,
    head=("head/", "pre_logits/"),
    describe=describe,
)


def open_model(path: str | os.PathLike, compile: bool = False) -> keras.Model:
    """The model in a `.keras` file, ready to train on with `compile=True`.

    FileNotFoundError where there is none, ValueError with its path where it is corrupt.
    """
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no model file at {path!r}.")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            check_claim(path, sum(entry.file_size for entry in archive.infolist()))
    try:
        return keras.saving.load_model(path, compile=compile)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(
            f"{path!r} cannot be read as a Keras model: it is corrupt, incomplete, or needs layers "
            f"that are not imported ({reason})"
        ) from error


def open_with(path: str, overrides: dict) -> keras.Model:
    """The model in a `.keras` file, at another `image_size` if asked."""
    others = set(overrides) - {"image_size"}
    if others:
        raise ValueError(
            "A .keras file holds its whole model; only `image_size` can be overridden. "
            f"Received: {', '.join(sorted(others))}"
        )
    model = open_model(path)
    return with_image_size(model, **overrides) if overrides else model
