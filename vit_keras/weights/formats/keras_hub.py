"""KerasHub's backbones and classifiers of ViT, DeiT, DINOv2 and DINOv3: presets, `.weights.h5`.

Biases that an option of a backbone leaves out are read as zeros. A `.weights.h5` without a preset's
JSON files says neither what the classifier reads, nor its activation, nor the epsilon.
"""

import dataclasses
import re
from collections.abc import Collection
from typing import Any

import keras
import numpy as np

from vit_keras.layers import Rope
from vit_keras.models import Preprocessing
from vit_keras.support.annotated import short
from vit_keras.support.resizing import Resizing
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.containers.checks import UnreadModel
from vit_keras.weights.formats import keras_hub_presets as presets
from vit_keras.weights.formats.base import (
    Format,
    Link,
    Numerics,
    check_held,
    check_only,
    same,
    zeros,
)
from vit_keras.weights.formats.dino import IMAGENET
from vit_keras.weights.formats.keras_hub_presets import DEIT, DINOV2, DINOV3, VIT, Family
from vit_keras.weights.formats.tensor_links import tensor_links
from vit_keras.weights.formats.tensor_names import LAYER_SCALE, tensor_sizes
from vit_keras.weights.recognition import guess_image_size

BIAS = re.compile(r"/(patch|mha|mlp|[qkvo](?=_proj))(?:_embedding|_proj)?/(?:.*/)?1$")
DEFAULT = ("position_embedding", "qkv_bias")  # of all but DINOv3
POSITIONS = "posembed_input/pos_embedding"
PROJECTIONS = {"q": "query", "k": "key", "v": "value", "o": "proj"}
# What the values of `pooling` do with the tokens that no classifier of ours reads in this way.
POOLED = {"gap": "averages the class token with the patches", "token": "reads the first patch"}


def canonical(name: str) -> str:
    """Removes the name of the backbone."""
    return re.sub(rf"^.*?({presets.BACKBONE})/", r"\1/", name)


def detect(names: set[str]) -> bool:
    return presets.family_in(names).is_in(names)


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    row = presets.family_of(arch) if names is None else presets.family_in(names)
    fields = (config or {}).get("config") or {}
    if "predictions/0" in (names or ()) and arch.num_classes is not None:
        token = row is not VIT or row.names.cls in names
        _check_pooling(_task(config).get("pooling", arch.classifier), token)
        _check_reads(arch, token)
    registers = fields.get("num_register_tokens", arch.options.num_registers)
    spelled, beside = _spelled(row, names, registers, arch.options.mlp == "swiglu")
    result = [_in_keras(row, link) for link in tensor_links(arch, spelled) if link.theirs]
    result = [_with(link, *beside.get(link.ours[0], ())) for link in result]
    if names is None:
        return result
    biased = {_option(row, name) for name in names}
    biased |= {option for option, value in fields.items() if value is True}
    return [k if _option(row, k.theirs[0]) in {None, *biased} else zeros(*k.ours) for k in result]


def _option(row, name):
    """The option of the backbone that leaves out the tensor; None for what is always there."""
    match = BIAS.search(name)
    option = match and f"use_{PROJECTIONS.get(match[1], match[1])}_bias"
    return option if option in row.biases else None


def _spelled(row, names, registers, gated=False):
    """The names of the tensors, and what DINO holds beside them, by the path of ours.

    The numbers of the variables in DINO's embeddings depend on which there are. A mask token and
    DINOv2's table of positions that KerasHub computes from the other one have no place in a model.
    """
    if row.names.first:
        return row.names, {}
    tables = ["resized", "positions"] if row is DINOV2 else []
    held = [name for name in names or () if re.fullmatch(r"embeddings/\d+", name)]
    extra = 1 + bool(registers) if names is None else len(held) - 1 - len(tables)
    one = "registers" if registers and names is not None else "mask"
    tokens = {0: [], 1: [one]}.get(extra, ["mask", "registers"])
    numbers = {name: f"embeddings/{i}" for i, name in enumerate(["cls", *tokens, *tables])}
    changes = {name: numbers.get(name, "") for name in ("positions", "registers")}
    if names is not None:
        gated = f"{row.names.of_block(0, row.names.packed)}/0" in names
    if gated and row is DINOV2:
        changes["dense_1"] = "mlp/weights_out"
    beside = {}
    if "mask" in numbers:
        beside["cls/cls"] = numbers["mask"], lambda cls: np.zeros_like(cls[0] if tables else cls)
    if tables:
        beside[POSITIONS] = numbers["resized"], lambda positions: positions
    return dataclasses.replace(row.names, **changes), beside


def _with(link, name="", write=None):
    """Adds a tensor that is read into nothing, and written from the link's first one."""
    if not name:
        return link
    both = lambda *x: (*(theirs := link.write(*x)), write(theirs[0]))
    return Link((*link.theirs, name), link.ours, lambda *x: link.read(*x[:-1]), both)


def _in_keras(row, link):
    """The link to Keras' variable instead of PyTorch's tensor.

    It has our layout, but DINOv3's matrices and SwiGLU's fused ones are PyTorch's, transposed.
    """
    path, ends = link.ours[0], {".weight": "/0", ".bias": "/1"}
    theirs = tuple(re.sub(r"\.\w+$", lambda end: ends[end[0]], name) for name in link.theirs)
    if not path.endswith(("/kernel", "/bias")):
        return dataclasses.replace(link, theirs=theirs)
    if path.startswith("embedding/") or (row is not DINOV3 and len(link.ours) == 1):
        return same(theirs[0], path)
    return Link(theirs, link.ours, lambda x: link.read(x.T), lambda *x: (link.write(*x)[0].T,))


def infer(shapes: dict, config: dict) -> dict:
    row, fields, task = presets.family_in(shapes), config.get("config", {}), _task(config)
    second = shapes.get("embeddings/1", ())  # registers, or a mask token of (1, D) or (1, 1, D)
    several = len(second) == 3 and (row is DINOV2 or second[1] > 1)
    registers = fields.get("num_register_tokens", several)
    names, beside = _spelled(row, shapes, registers)
    token = row is not VIT or names.cls in shapes
    arguments = tensor_sizes(names, _in_pytorch(shapes), "token" if token else "gap")
    if "predictions/0" in shapes:
        del arguments["classifier"]
        if task:
            _check_pooling(task["pooling"], token)
            arguments |= {"classifier": task["pooling"], **_activation(task["activation"])}
    if not row.names.first:
        arguments["layer_scale"] = fields.get("layer_scale_init_value", LAYER_SCALE)
    if row is DINOV3:
        arguments |= _rotary(arguments.get("mlp") == "swiglu", fields)
    else:
        arguments = {k: v for k, v in arguments.items() if k not in DEFAULT}
        arguments["num_heads"] = shapes[f"{names.of_block(0, names.query)}/0"][1]
        arguments |= {"distillation_token": True} if row is DEIT else {}
        arguments |= {"position_cover": "class"} if "num_registers" in arguments else {}
        table = beside.get(POSITIONS, [names.positions])[0]
        slots = 2 if row is DEIT else int(token)
        arguments |= guess_image_size(shapes[table][-2], arguments["patch_size"], slots)
    if image_shape := fields.get("image_shape"):
        channels_last = image_shape[-1] == arguments["channels"]
        arguments["image_size"] = tuple(image_shape[:2] if channels_last else image_shape[1:])
    return arguments


def _in_pytorch(shapes):
    """The shapes under their names, and as PyTorch's tensors have them."""
    turned = {}
    for name, shape in shapes.items():
        other = name[:-2] + {"/0": ".weight", "/1": ".bias"}.get(name[-2:], name[-2:])
        turned[other] = (*shape[3:1:-1], *shape[:2]) if len(shape) == 4 else shape[::-1]
    return turned | shapes


def _rotary(gated, fields):
    """What DINOv3's configuration says."""
    expected = "silu" if gated else "gelu"
    activation = _name(fields.get("hidden_activation", expected))
    if activation != expected:
        raise UnreadModel(
            f"KerasHub's DINOV3Backbone with use_gated_mlp={gated} is read with "
            f"hidden_activation={expected!r}. Received: {short(activation)}"
        )
    rope = Rope(base=fields.get("rope_theta", 100.0), centered=True)
    heads = {"num_heads": fields["num_heads"]} if "num_heads" in fields else {}
    epsilon = {} if fields else {"layer_norm_epsilon": DINOV3.epsilon[1]}
    return {"rope": dataclasses.asdict(rope), **heads, **epsilon}


def _task(config):
    """Returns the arguments of the classifier, or nothing if there is no classifier."""
    task = (config or {}).get("task.json")
    return {"pooling": "token", "activation": None, **task.get("config", {})} if task else {}


def _check_reads(arch, token):
    """Refuses models whose classifiers read other tokens and have the same variables."""
    if ("cls" in arch.prefix.names) == token and arch.classifier != ("token" if token else "gap"):
        message = 'KerasHub has classifier "token" or "gap", the latter without a class token. '
        raise ValueError(f"{message}Received: classifier={arch.classifier!r}")


def _check_pooling(pooling, token):
    if pooling != ("token" if token else "gap"):
        raise UnreadModel(
            f"KerasHub's pooling={pooling!r} with use_class_token={token} "
            f"{POOLED.get(pooling, 'reads every token')}, and no classifier of this package does "
            "so. Save the backbone alone with `classifier.backbone.save_to_preset(folder)`"
        )


def _name(activation):
    return activation.get("config") if isinstance(activation, dict) else activation


def _activation(activation):
    """The argument for the activation of the head; empty for logits."""
    name = _name(activation)
    if name is None or name == "linear":
        return {}
    if not hasattr(keras.activations, str(name)):
        message = "The classifier's activation must be one of `keras.activations`. Received: "
        raise UnreadModel(message + short(activation))
    return {"classifier_activation": name}


def assumption(shapes: dict, config: dict, overrides: Collection[str]) -> str:
    """KerasHub's defaults and a square image, where no JSON file of a preset says otherwise."""
    row, unsaid = presets.family_in(shapes), {}
    if "config" not in config:
        said = {"layer_norm_epsilon": row.epsilon[1], **infer(shapes, config)}
        names = ("layer_norm_epsilon", *(("rope", "mlp") if row is DINOV3 else ("image_size",)))
        unsaid = {name: said.get(name) for name in names}
    if "predictions/0" in shapes and not _task(config):
        unsaid["classifier_activation"] = None
    text = ", ".join(f"{name}={value}" for name, value in unsaid.items() if name not in overrides)
    return text and f"a model with {text}, which it does not say; pass what is otherwise"


def numerics(config: dict, row: Family | None = None) -> Numerics:
    row = row or presets.CLASSES["config.json"].get(str(config.get("registered_name")), VIT)
    backbone, preprocessor = config.get("config"), _task(config).get("preprocessor") or {}
    converter = preprocessor.get("config", {}).get("image_converter")
    default = None if backbone is None and row is not DINOV2 else row.epsilon[1]
    said = {row.epsilon[0]: default, **(backbone or {})}
    rule = "bicubic_antialias" if said.get("antialias_in_interpolation") else "bicubic"
    return Numerics(
        layer_norm_epsilon=said.get(row.epsilon[0]),
        preprocessing=_preprocessing(converter or config.get("image_converter.json"), row),
        resizing=Resizing(rule) if row is DINOV2 else Resizing(),
    )


def _preprocessing(converter: dict[str, Any] | None, row: Family) -> Preprocessing:
    """Turns `(x · scale + offset - norm_mean) / norm_std` of pixels x in [0, 255] into ours.

    KerasHub 0.18 wrote the last two. Without a converter, pixels of a ViT go to [-1, 1] and those
    of other families are standardized with ImageNet's colors.
    """
    if converter is None and row is not VIT:
        return IMAGENET
    default = {"config": {"scale": 1 / 127.5, "offset": -1.0}}
    content: dict[str, Any] = (converter or default).get("config", {})
    if content.get("pad_to_aspect_ratio"):
        raise UnreadModel("`pad_to_aspect_ratio` of the converter must be false. Received: true")
    absent = {"scale": 1.0, "offset": 0.0, "norm_mean": 0.0, "norm_std": 1.0}
    values = (absent[name] if content.get(name) is None else content[name] for name in absent)
    scale, offset, mean, std = np.broadcast_arrays(*map(np.atleast_1d, values))
    with np.errstate(all="ignore"):  # `Preprocessing` refuses what is not finite
        mean, std = (mean - offset) / (255 * scale), std / (255 * scale)
    return Preprocessing(
        mean=tuple(mean.tolist()),
        std=tuple(std.tolist()),
        interpolation=content.get("interpolation", "bilinear"),
        antialias=content.get("antialias", False),
        crop_fraction=1.0 if content.get("crop_to_aspect_ratio", True) else None,
        rounding="none",
    )


def check(arch: VisionTransformerArchitecture) -> None:
    row, options = presets.family_of(arch), arch.options
    positions = ("none",) if row is DINOV3 else ("learned",)
    check_held(dataclasses.replace(FORMAT, options=row.options, positions=positions), arch)
    square = {"patch_size": (arch.patch_size[0],) * 2}
    only: dict[str, Any] = {"num_classes": arch.num_classes} if row.names.first else square
    if row is not VIT:
        only["classifier"] = "token"
    elif arch.num_classes is not None:
        only["representation_size"] = arch.representation_size
    if options.rope is not None:
        only["rope"] = dataclasses.asdict(Rope(base=options.rope.base, centered=True))
    if row is DINOV2:
        only["image_size"] = (arch.image_size[0],) * 2
        only["position_cover"] = "class" if options.num_registers else options.position_cover
        only["mlp_dim"] = -(-arch.mlp_dim // 8) * 8 if options.mlp == "swiglu" else arch.mlp_dim
    check_only(f"KerasHub's {row.name}", arch, only)


FORMAT = Format(
    name="keras_hub",
    suffixes=(".weights.h5",),
    detect=detect,
    infer=infer,
    links=links,
    numerics=numerics,
    refine=lambda old, shapes, config: numerics(config, presets.family_in(shapes)),
    options=tuple(dict.fromkeys((*DEIT.options, *DINOV2.options, *DINOV3.options))),
    positions=("learned", "none"),
    classifiers=("token", "gap"),
    canonical=canonical,
    holds_activation=True,
    head=("predictions/", "pre_logits/"),
    check=check,
    assumption=assumption,
    config_files=presets.config_files,
    h5_groups=presets.h5_groups,
)
