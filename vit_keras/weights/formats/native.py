"""This package's own `.keras` and `.weights.h5` files, which hold any model.

Keras numbers the variables of each layer, so `head/kernel` is `head/0`. A `.keras` file also
records how the model computes. A `.weights.h5` does not, and loading it keeps the model's numerics.
"""

import dataclasses
import re

import keras

from vit_keras.layers import PatchEmbedding
from vit_keras.models.architectures import Numerics, class_for
from vit_keras.support.keras_internals import sublayers
from vit_keras.support.preprocessing import with_tuples
from vit_keras.weights.containers.keras_h5 import KERAS_CONFIG
from vit_keras.weights.formats.base import LEARNED, Format, covered_positions
from vit_keras.weights.formats.google import BIT_ROOT, infer_bit, sizes
from vit_keras.weights.formats.tensor_names import single


@dataclasses.dataclass(frozen=True)
class VariableLayout:
    """The variables of any model, and the grid of its patches.

    Attributes:
        variables: (name in the file, path) pairs.
        grid: Rows and columns of patches, or None for a model without patches.
    """

    variables: tuple[tuple[str, str], ...]
    grid: tuple[int, int] | None

    @staticmethod
    def from_model(model: keras.Model) -> "VariableLayout":
        """Reads the layout from a built model."""
        stem = next((x for x in sublayers(model) if isinstance(x, PatchEmbedding)), None)
        grid = stem and stem.grid(stem.input.shape[1:3])
        return VariableLayout(tuple(_numbered_variables(model)), grid)


def _numbered_variables(model, prefix=""):
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _numbered_variables(layer, f"{prefix}{layer.name}/")
            continue
        counts: dict[str, int] = {}
        for variable in layer.weights:
            names = variable.path.split("/")[:-1]
            outer = names.index(layer.name) if layer.name in names else 0
            owner = "/".join(names[outer:])
            counts[owner] = counts.get(owner, -1) + 1
            yield f"{prefix}{owner}/{counts[owner]}", variable.path


class Native(Format):
    suffixes = (".weights.h5",)
    head = ("head/", "head_", "pre_logits/")
    architecture = VariableLayout

    def detect(self, names):
        return all(re.search(r"/\d+$", name) for name in names)

    def links(self, layout, names, config):
        return [single(theirs, ours) for theirs, ours in layout.variables]

    def infer(self, shapes, config):
        model = config.get(KERAS_CONFIG, {})
        if "layers" in model:
            if not isinstance(model.get("architecture"), dict):
                raise ValueError("Its model was not built by a constructor of this package")
            return {**LEARNED, **with_tuples(model["architecture"])}
        renamed = {"cls/0": "cls", "MAPHead_0/0": "MAPHead_0/probe"}
        named = {renamed.get(k, re.sub("/0$", "/kernel", k)): shape for k, shape in shapes.items()}
        if BIT_ROOT in named:
            return infer_bit(named)
        arguments = sizes(named, "encoderblock")
        if "dist/0" in shapes:
            arguments["classifier"] = "distilled"
        if len(positions := shapes.get("posembed_input/0", ())) != 3:
            raise ValueError(
                "A .weights.h5 file does not state which position embeddings its model has, unless "
                "they are learned and added once. Build the model and load the file into it with "
                "vit_keras.weights.load(model, path), or save a .keras file, which holds its model"
            )
        arguments |= covered_positions(arguments, positions[1], None, ("all",))
        if arguments["classifier"] == "gap":  # or "gap_norm"
            del arguments["classifier"]
        return arguments

    def numerics(self, shapes, config):
        """Reads the numerics in a `.keras` file; None without a known architecture."""
        model = config.get(KERAS_CONFIG, {})
        known = model.get("architecture")
        if not isinstance(known, dict) or "preprocessing" not in model:
            return None
        fields = {name: known[name] for name in class_for(known).numerics_fields if name in known}
        fields |= {name: model[name] for name in ("preprocessing", "class_names")}
        return Numerics.from_json({**fields, "resizing": model.get("resizing", {})})
