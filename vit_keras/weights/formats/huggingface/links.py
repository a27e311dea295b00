"""The links between a model and transformers' tensors, and the models that its classes hold."""

import dataclasses
import itertools

import numpy as np

from vit_keras.models.options import OPTION_NAMES, ViTOptions
from vit_keras.support.resizing import resize_relative_table
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.base import Link, zeros
from vit_keras.weights.formats.huggingface.config import image_size_of, kind_of_head
from vit_keras.weights.formats.huggingface.model_type import ANY, ModelType
from vit_keras.weights.formats.huggingface.types import (
    MODEL_TYPES,
    model_type_of,
    tower_config,
    type_for,
)
from vit_keras.weights.formats.tensor_links import tensor_links

# Fields of DINOv3's configuration, and the layers whose bias they switch on or off.
BIASES = {"mlp_bias": ("up_proj", "gate_proj", "down_proj"), "proj_bias": ("o_proj",)}


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    """Links all variables of a model to the tensors of a file, or of a transformers class."""
    tower = tower_config(config or {})
    if names is None:
        name = tower.get("model_type")
        return links_to_write(arch, type_for(arch) if name is None else MODEL_TYPES[name])
    row = model_type_of(tower, names)
    absent = tuple(
        f".{layer}.bias"
        for field, layers in BIASES.items()
        for layer in layers
        if row.fields.get(field) and tower.get(field) is False
    )
    result = tensor_links(arch, row.spelling(row.names, names))
    result = [_without_bias(link, absent) for link in result]
    result = [_transposed_table(link, arch, tower) for link in result]
    return [_beside(link, *_unused(arch, row, names)) for link in result]


def _unused(arch, row, names):
    """Returns the tensors that the class of a file holds but does not use, and known shapes."""
    unused, shapes = [], []
    if row.names.registers in names and not arch.options.num_registers:
        unused, shapes = [row.names.registers], [(1, 0, arch.hidden_size)]
    if str(arch.options.boxes).startswith("texts"):
        unused.append("visual_projection.weight")
    if "classifier.weight" in names:
        prefixes = ["pooler.dense."]
        prefixes += [] if arch.classifier == "map" else ["head."]
        prefixes += [] if arch.options.final_norm else ["post_layernorm."]
        unused += [name for name in names if name.startswith(tuple(prefixes))]
    return unused, shapes


def _beside(link, unused, shapes):
    """Reads unused tensors together with the first normalization of the first block."""
    if link.ours != ("encoderblock_0/LayerNorm_0/gamma",) or not unused:
        return link
    extra = [np.zeros(shape, "float32") for shape in shapes]
    return Link((*link.theirs, *unused), link.ours, lambda x, *_: (x,), lambda x: (x, *extra))


def _without_bias(link, absent):
    """Reads zeros for a bias that the configuration leaves out."""
    if not absent or not link.theirs[0].endswith(absent):
        return link
    return zeros(*link.ours)


def _transposed_table(link, arch, config):
    """Reads BEiT's table like transformers, which swaps its rows and columns and resizes it."""
    size = image_size_of(config)
    if not link.ours[0].endswith("relative_2d/table") or size is None or size[0] == size[1]:
        return link
    rows, columns = (side // patch for side, patch in zip(size, arch.patch_size))

    def read(*tables):
        (*ours,) = link.read(*tables)
        return tuple(resize_relative_table(x, (columns, rows), (rows, columns)) for x in ours)

    return dataclasses.replace(link, read=read)


def links_to_write(arch: VisionTransformerArchitecture, row: ModelType) -> list[Link]:
    """Links all variables of a model, and the other tensors that its transformers class needs."""
    tensors = row.spelling(row.names, _written(arch, row))
    fillers = [
        Link((name,), (), lambda: (), lambda value=value: (value,))
        for name, value in row.fillers(arch).items()
    ]
    base = row.base if kind_of_head(arch) else ""
    prefixed = lambda name: name if name.startswith(row.outside) else f"{base}{name}"
    return [
        dataclasses.replace(link, theirs=tuple(map(prefixed, link.theirs)))
        for link in [*tensor_links(arch, tensors), *fillers]
    ]


def _written(arch, row):
    """Returns the tensor names that decide how a model is spelled."""
    names = row.names
    marks = {names.of_block(0, names.relative)}
    if arch.classifier == "distilled":
        marks.add("cls_classifier.weight")
    if arch.options.mlp == "swiglu" and names.packed:
        marks.add(names.of_block(0, f"{names.packed}.weight"))
    return marks


OPTIONS = tuple(
    dict.fromkeys(
        ["crop_to_patches", *itertools.chain(*(row.holds for row in MODEL_TYPES.values()))]
    )
)
POSITIONS = tuple(dict.fromkeys(itertools.chain(*(row.positions for row in MODEL_TYPES.values()))))
DEFAULTS = ViTOptions()


def check_class(arch: VisionTransformerArchitecture, row: ModelType) -> None:
    """Raises ValueError if no class of a model type holds a model of this architecture."""
    received = {
        name: getattr(arch.options, name)
        for name in OPTION_NAMES
        if not _is_held(row, name, getattr(arch.options, name))
    }
    if arch.position_embedding_at != "stem" and not row.names.positions_of_blocks:
        received["position_embedding_at"] = arch.position_embedding_at
    if arch.position_embedding not in row.positions:
        received["position_embedding"] = arch.position_embedding
    if row.square and not is_square(arch):
        received |= {"image_size": arch.image_size, "patch_size": arch.patch_size}
    if arch.representation_size is not None and not row.names.pre_logits:
        received["representation_size"] = arch.representation_size
    rope = arch.options.rope
    if rope is not None and (not rope.centered or rope.mixed):
        received["rope"] = rope
    if (arch.classifier, kind_of_head(arch)) not in row.classes:
        received |= {"classifier": arch.classifier, "num_classes": arch.num_classes}
    received = received or _denied(arch, row)
    if received:
        _refuse(row, received)
    row.write(arch)


def _is_held(row, name, value):
    if name == "crop_to_patches":
        return True
    default = getattr(DEFAULTS, name)
    if name not in row.holds:
        return value == default
    if name in row.needs and value == default:
        return False
    return row.holds[name] == ANY or value in row.holds[name]


def _denied(arch, row):
    """Returns the options that would make the written tensors read as another model."""
    names = {name for link in links_to_write(arch, row) for name in link.theirs}
    known = row.design({name.removeprefix(row.base) for name in names})
    known = {name: value for name, value in known.items() if isinstance(value, (bool, str))}
    ours = {**dataclasses.asdict(arch.options), "classifier": arch.classifier}
    return {name: ours[name] for name, value in known.items() if ours[name] != value}


def is_square(arch) -> bool:
    """Whether images and patches are square."""
    return all(len(set(size)) == 1 for size in (arch.image_size, arch.patch_size))


def _refuse(row, received):
    held = ", ".join(
        f"{name} (classifier={reads!r}, {head or 'no classes'})"
        for (reads, head), name in row.classes.items()
    )
    values = ", ".join(f"{name}={value!r}" for name, value in received.items())
    raise ValueError(
        f"The nearest of transformers' model types, {row.name!r}, has no class for such a model; "
        f"it has {held}. Received: {values}. Save the model as .keras or .weights.h5"
    )
