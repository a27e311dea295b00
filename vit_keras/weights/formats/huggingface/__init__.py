"""The Vision Transformers of Hugging Face's transformers, with a `model_type` per family.

Files have the names that transformers writes to disk, with or without the prefix of a class with a
head; the in-memory names of transformers 5 are also read. The pooler of a `ViTModel` becomes
`pre_logits`. Text towers, pre-training decoders and mask tokens are left out.
"""

import math

from vit_keras.models.options import OPTION_NAMES, WITH_NO_OBJECT, ViTOptions
from vit_keras.support.resizing import Resizing
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.base import Format, Numerics
from vit_keras.weights.formats.huggingface.config import (
    check_sizes,
    class_names_of,
    gelu_of,
    image_size_of,
    read_processor,
    task_of,
    write_config,
    write_processor,
)
from vit_keras.weights.formats.huggingface.links import (
    OPTIONS,
    POSITIONS,
    check_class,
    is_square,
    links,
)
from vit_keras.weights.formats.huggingface.model_type import HEADS, IGNORED, canonical
from vit_keras.weights.formats.huggingface.types import (
    MODEL_TYPES,
    fields_of,
    is_known,
    model_type_of,
    tower_config,
    type_for,
)
from vit_keras.weights.formats.tensor_names import covered_positions, tensor_sizes

NAFLEX = "bilinear_antialias"
LAST_RESORT = (224, 224)  # transformers' default of `image_size`
PROCESSOR = "preprocessor_config.json"


def infer(shapes: dict, config: dict) -> dict:
    names = set(shapes)
    row = model_type_of(config, names)
    tensors = row.spelling(row.names, names)
    design = row.design(names)
    patches = _patch(tensors, shapes, tower_config(config))
    arguments = tensor_sizes(tensors, shapes, design["classifier"], *patches)
    arguments |= design
    if arguments.get("boxes") in WITH_NO_OBJECT:
        arguments["num_classes"] -= 1
    if arguments["num_classes"] is not None:
        arguments["representation_size"] = None  # a pooler beside a classifier has no effect
    if "model_type" in tower_config(config):
        check_sizes(config, arguments)
        fields = fields_of(row, config)
        _check_pooler(arguments, fields)
        arguments |= {"num_heads": fields["num_attention_heads"], **row.says(fields)}
    elif "num_attention_heads" in config:
        arguments["num_heads"] = config["num_attention_heads"]
    arguments |= _image_size(arguments, tensors, shapes, config)
    return _as_in_descriptions(arguments)


def _as_in_descriptions(arguments):
    """Leaves out options and positions that equal the paper's."""
    options = ViTOptions(**{key: arguments[key] for key in OPTION_NAMES if key in arguments})
    others = {key: value for key, value in arguments.items() if key not in OPTION_NAMES}
    if others.get("position_embedding") == "learned":
        del others["position_embedding"]
    return others | options.changed()


def _patch(tensors, shapes, tower):
    """Returns the side of square patches and the channels, if a matrix projects flat patches."""
    kernel, channels = shapes[f"{tensors.patches}.weight"], tower.get("num_channels", 3)
    side = math.isqrt(kernel[1] // channels)
    return ((side, side), channels) if len(kernel) == 2 else (None, channels)


def _check_pooler(arguments, fields):
    """Checks that the pooler has tanh, as `pre_logits` does; it is transformers' default."""
    activation = fields.get("pooler_act", "tanh")
    if arguments["representation_size"] is not None and activation != "tanh":
        raise ValueError(f"`pooler_act` must be 'tanh'. Received: {activation!r}")


def _image_size(arguments, tensors, shapes, config):
    """Returns the size of images and the tokens that positions cover."""
    positions = shapes.get(tensors.positions, (0, 0))
    count = positions[0] if len(positions) == 2 else positions[1]
    size = image_size_of(config)
    if size is None and not tensors.linear_patches and "model_type" in tower_config(config):
        try:
            return covered_positions(arguments, count, LAST_RESORT)
        except ValueError:
            pass
    return covered_positions(arguments, count, size) if count or size else {}


def numerics(config: dict) -> Numerics:
    named = "model_type" in tower_config(config)
    return _numerics(model_type_of(config, set()) if named else MODEL_TYPES["vit"], config)


def _numerics(row, config):
    fields = fields_of(row, config)
    rule, half_pixel = row.rule(fields), "bilinear_half_pixel"
    patches = half_pixel if rule == NAFLEX else "bicubic"
    biases = half_pixel if row.name == "beit" and rule == "bicubic" else None
    return Numerics(
        gelu=gelu_of(fields),
        layer_norm_epsilon=fields["layer_norm_eps"],
        preprocessing=read_processor(config.get(PROCESSOR) or {}, row.processor),
        resizing=Resizing(rule, patches, biases=biases, crops=True),
        class_names=class_names_of(config),
        task=task_of(config),
    )


def refine(numerics: Numerics, shapes: dict, config: dict) -> Numerics:
    """Takes the model type from the tensors' names if there is no configuration."""
    return _numerics(model_type_of(config, set(shapes)), config)


def check(arch: VisionTransformerArchitecture) -> None:
    if arch.num_classes is not None and arch.representation_size is not None:
        raise ValueError(
            "transformers' classes have no hidden layer `pre_logits` before their classifier. "
            f"Received: representation_size={arch.representation_size}; a model with "
            "num_classes=None is saved as a ViTModel with that layer as its pooler"
        )
    check_class(arch, type_for(arch))


def config_files(arch: VisionTransformerArchitecture, numerics: Numerics) -> dict[str, dict]:
    row = type_for(arch, numerics.resizing.positions == NAFLEX and is_square(arch))
    sizes, pixels = (arch.image_size, arch.channels), numerics.preprocessing
    processor = write_processor(*sizes, pixels, row.processor)
    if row.processor == "Siglip2ImageProcessor":
        processor |= {"patch_size": arch.patch_size[0], "max_num_patches": arch.num_positions}
    return {"config.json": write_config(arch, row, numerics), PROCESSOR: processor}


FORMAT = Format(
    name="huggingface",
    suffixes=(".safetensors", ".bin"),
    detect=is_known,
    infer=infer,
    links=links,
    numerics=numerics,
    refine=refine,
    canonical=canonical,
    options=OPTIONS,
    positions=POSITIONS,
    positions_at=("stem", "every"),
    head=HEADS,
    ignored=IGNORED,
    wraps=lambda names: "layernorm.weight" in names and "pooler.dense.weight" not in names,
    check=check,
    config_files=config_files,
)
