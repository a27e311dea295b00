"""Which models transformers' classes can hold."""

import dataclasses
import itertools

from vit_keras.models.options import OPTION_NAMES, ViTOptions
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.huggingface_config import kind_of_head
from vit_keras.weights.formats.huggingface_links import links_to_write
from vit_keras.weights.formats.huggingface_type import ANY, ModelType
from vit_keras.weights.formats.huggingface_types import MODEL_TYPES

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
    """The options with which the written tensors would be read as another model."""
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
