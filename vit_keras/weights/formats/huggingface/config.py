"""Reads and writes transformers' `config.json` and `preprocessor_config.json`."""

from collections.abc import Sequence
from typing import Any

from vit_keras.layers.common import check_choice, pair
from vit_keras.models import Preprocessing
from vit_keras.models.architectures import Numerics
from vit_keras.support.checks import listed
from vit_keras.support.tasks import CLASSES, Task
from vit_keras.variants.families import CLIP, HALF, IMAGENET
from vit_keras.weights.formats.base import GELUS, pairs
from vit_keras.weights.formats.huggingface.model_types import MODEL_TYPES, ModelType

# Other model types: those whose configurations have the image tower's as `vision_config`, and other
# names for image towers.
TOWERS = {
    **{row.whole: row.name for row in MODEL_TYPES.values() if row.whole},
    "data2vec-vision": "beit",
    **{
        f"{name}{end}": "clip_vision_model"
        for name in ("metaclip_2", "chinese_clip", "altclip")
        for end in ("", "_vision_model")
    },
    "idefics_vision": "clip_vision_model",
    **{f"{name}_vision": "siglip_vision_model" for name in ("idefics2", "idefics3", "smolvlm")},
}
# Their defaults, where these differ from those of the types.
DEFAULTS: dict[str | None, dict[str, Any]] = {
    "idefics_vision": {"num_attention_heads": 16, "hidden_act": "gelu"},
    "idefics3_vision": {"num_attention_heads": 16},
    "smolvlm_vision": {"num_attention_heads": 16},
}


def is_part(config: dict) -> bool:
    """Whether the image tower is a part of a larger model, such as LLaVA."""
    return isinstance(config.get("vision_config"), dict) and config.get("model_type") not in TOWERS


def tower_config(config: dict) -> dict:
    """Returns the configuration of the image tower, with the labels and task of the outer one."""
    tower = config.get("vision_config")
    if not isinstance(tower, dict):
        return config
    labels = {key: config[key] for key in ("id2label", "problem_type") if key in config}
    whole = TOWERS.get(config.get("model_type", ""), config.get("model_type"))
    if is_part(config) and TOWERS.get(part := tower.get("model_type", ""), part) in MODEL_TYPES:
        whole = part
    kept = {key: value for key, value in config.items() if key.endswith(".json")}
    inner = config.get("vision_config_dict") or tower  # in old files
    return {**kept, **inner, **labels, "model_type": whole}


def read_config(config: dict, names: set[str]) -> tuple[ModelType, dict[str, Any]]:
    """Returns the model type, and the fields of its configuration with defaults for absent ones.

    Args:
        config: The configuration of an image tower, alone or in a larger model.
        names: The names of the file's tensors, which determine the type if no configuration does.

    Raises:
        ValueError: If there is no such type, or if the file's tensors belong to another type.
    """
    tower = tower_config(config)
    said = tower.get("model_type")
    name = by_names(names).name if said is None else TOWERS.get(said, said)
    check_choice(name, MODEL_TYPES, "model_type")
    row = MODEL_TYPES[name]
    if names and not row.held <= names:
        raise ValueError(
            f"config.json says model_type={name!r}, whose files have {listed(sorted(row.held))}. "
            f"Received: a file with the tensors of {by_names(names).name!r}"
        )
    stated = {key: value for key, value in tower.items() if value is not None}
    return row, {**row.fields, **DEFAULTS.get(said, {}), **stated}


def is_known(names: set[str]) -> bool:
    """Whether a file with canonical `names` has the tensors of one of the types."""
    return any(row.held <= names for row in MODEL_TYPES.values())


def by_names(names: set[str]) -> ModelType:
    """Returns the first type that matches the names of a file's tensors."""
    rows = [row for row in MODEL_TYPES.values() if row.held <= names]
    marked = [row for row in rows if row.mark in {"", *names}]
    whole = [row for row in marked if row.names.cls in {"", *names}]
    return (whole or marked or rows or [MODEL_TYPES["vit"]])[0]


def type_for(arch, naflex: bool = False) -> ModelType:
    """Returns the type under which to write a model of this architecture.

    Args:
        arch: The architecture.
        naflex: Whether positions are resized as in SigLIP 2's NaFlex.
    """
    options, every = arch.options, arch.position_embedding_at == "every"
    plain = options.position_cover == "all" and options.layer_scale is None
    is_scaled = options.layer_scale is not None or options.mlp != "gelu"
    fits = {  # the first one counts
        "dinov3_vit": options.rope is not None,
        "clip_vision_model": options.pre_norm,
        "siglip2_vision_model": arch.classifier == "map" and naflex,
        "siglip_vision_model": arch.classifier == "map",
        "beit": arch.position_embedding.endswith("relative_2d") or options.qkv_bias == "qv",
        "yolos": options.boxes == "tokens" or every or (options.num_registers > 0 and plain),
        "deit": "dist" in arch.prefix.names,
        "dinov2_with_registers": options.num_registers > 0,
        "dinov2": is_scaled or arch.classifier == "token_gap",
        "ijepa": arch.classifier == "gap",
        "vit_msn": arch.num_classes is None and arch.representation_size is None,
        "vit": True,
    }
    return MODEL_TYPES[next(name for name, is_first in fits.items() if is_first)]


WRITTEN_GELU = {"exact": "gelu", "tanh": "gelu_pytorch_tanh", "quick": "quick_gelu"}
GATES = ("silu", "swish")
# By `Task.kind`; the pipeline computes probabilities accordingly.
PROBLEMS = {"labels": "multi_label_classification", "numbers": "regression"}
# Fields of a configuration, and the arguments of a model that they must equal.
SIZES = pairs("hidden_size=hidden_size num_hidden_layers=num_layers intermediate_size=mlp_dim")
IMAGE_SIZES = {**SIZES, "num_channels": "channels", "patch_size": "patch_size"}


def gelu_of(fields: dict) -> str:
    """Returns the name of the GELU in a configuration."""
    activation = fields["hidden_act"]
    check_choice(activation, GATES if fields.get("use_gated_mlp") else GELUS, "hidden_act")
    return GELUS.get(activation, "exact")


def image_size_of(fields: dict) -> tuple[int, int] | None:
    """Returns the height and width in a configuration, or None."""
    return pair(fields["image_size"], "image_size") if "image_size" in fields else None


def faults_of(fields: dict, names: dict[str, str], arguments: dict) -> list[str]:
    """Describes the fields of a configuration that contradict a file's tensors.

    Args:
        fields: The configuration.
        names: `{name of a field: name of the argument that it must equal}`.
        arguments: The arguments that follow from the tensors.
    """
    return [
        f"{field} is {fields[field]} in config.json, {arguments[name]} in the tensors"
        for field, name in names.items()
        if fields.get(field) not in (None, arguments[name])
    ]


def check_sizes(fields: dict, arguments: dict) -> None:
    """Raises ValueError with a line for each number in a configuration that tensors contradict."""
    patch = {k: pair(fields[k], k) for k in ("patch_size",) if k in fields}
    faults = faults_of({**fields, **patch}, IMAGE_SIZES, arguments)
    labels = len(fields.get("id2label", ()))
    of_texts = str(arguments.get("boxes")).startswith("texts")
    has_classes = arguments.get("head_use_bias", True) and not of_texts
    classes = arguments["num_classes"] if has_classes else None
    if labels and classes and labels != classes:
        faults.append(f"id2label names {labels} classes, but the tensors have {classes}")
    if faults:
        raise ValueError(
            "A folder's config.json must describe its tensors. Received:\n  " + "\n  ".join(faults)
        )


def class_names_of(fields: dict) -> tuple[str, ...] | None:
    """Returns the names of the classes, or None if they are `LABEL_0` and so on."""
    labels = {int(i): name for i, name in fields.get("id2label", {}).items()}
    names = tuple(labels[i] for i in sorted(labels))
    return None if all(name == f"LABEL_{i}" for i, name in enumerate(names)) else names


def task_of(fields: dict) -> Task:
    """Returns the task that a configuration describes."""
    said = fields.get("problem_type")
    return next((Task(kind) for kind, problem in PROBLEMS.items() if problem == said), CLASSES)


def kind_of_head(arch) -> str:
    """Returns "", "classifier" or "projection", as in `ModelType.classes`."""
    if arch.num_classes is None:
        return ""
    return "classifier" if arch.options.head_use_bias else "projection"


def written_sizes(arch, names: dict[str, str]) -> dict[str, Any]:
    """Returns the fields of a tower's configuration that every type has."""
    return {
        **{field: getattr(arch, name) for field, name in names.items()},
        "num_attention_heads": arch.num_heads,
        "hidden_act": WRITTEN_GELU[arch.gelu],
        "layer_norm_eps": arch.layer_norm_epsilon,
    }


def write_config(arch, row: ModelType, numerics: Numerics) -> dict:
    """Returns the content of `config.json`."""
    head = kind_of_head(arch)
    if (arch.classifier, head) not in row.classes:
        raise ValueError(
            f"transformers' {row.name!r} has only the classes {', '.join(row.classes.values())}. "
            f"Received: a model with classifier={arch.classifier!r}, "
            f"num_classes={arch.num_classes}. Save it as .keras or .weights.h5"
        )
    config = {
        "model_type": row.name,
        **written_sizes(arch, IMAGE_SIZES),
        "image_size": _side(arch.image_size, row),
        "patch_size": _side(arch.patch_size, row),
        **row.written(arch),
    }
    if arch.representation_size is not None:
        config |= {"pooler_output_size": arch.representation_size, "pooler_act": "tanh"}
    outer = config
    if row.whole and head == "classifier":
        outer = {"model_type": row.whole, "vision_config": config}
    if head == "classifier":
        names = numerics.class_names or [f"LABEL_{i}" for i in range(arch.num_classes)]
        outer |= labels_of(names, numerics.task.kind)
    return {"architectures": [row.classes[arch.classifier, head]], **outer, "dtype": "float32"}


def _side(size, row):
    return size[0] if row.square or size[0] == size[1] else list(size)


def labels_of(names: Sequence[str], kind: str) -> dict:
    """Returns the fields for the names of classes and the kind of their task."""
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
        **({"problem_type": PROBLEMS[kind]} if kind in PROBLEMS else {}),
    }


PIL_RESAMPLE = {"bilinear": 2, "bicubic": 3}
SQUARE, EDGE = {"height": 224, "width": 224}, {"shortest_edge": 224}


def _defaults(colors, resample, size, crop=None):
    fields = {"image_mean": colors["mean"], "image_std": colors["std"]}
    fields |= {"resample": resample, "size": size}
    return {**fields, "do_center_crop": crop is not None, "crop_size": crop or SQUARE}


# The defaults of each class, for missing fields.
PROCESSORS: dict[str, dict[str, Any]] = {
    "ViTImageProcessor": _defaults(HALF, 2, SQUARE),
    "DeiTImageProcessor": _defaults(HALF, 3, {"height": 256, "width": 256}, SQUARE),
    "BeitImageProcessor": _defaults(HALF, 3, SQUARE),
    "BitImageProcessor": _defaults(CLIP, 3, EDGE, SQUARE),
    "DINOv3ViTImageProcessor": _defaults(IMAGENET, 2, SQUARE),
    "CLIPImageProcessor": _defaults(CLIP, 3, EDGE, SQUARE),
    "SiglipImageProcessor": _defaults(HALF, 3, SQUARE),
    "Siglip2ImageProcessor": _defaults(HALF, 2, SQUARE),
    "YolosImageProcessor": _defaults(IMAGENET, 2, {"shortest_edge": 800, "longest_edge": 1333}),
    "OwlViTImageProcessor": _defaults(CLIP, 3, {"height": 768, "width": 768}),
    "Owlv2ImageProcessor": _defaults(CLIP, 2, {"height": 960, "width": 960}),
}
EXACT = ("DINOv3ViTImageProcessor",)  # it scales levels to floats before resizing
CROP = ("CLIPImageProcessor", "BitImageProcessor")


def read_processor(settings: dict, processor: str) -> Preprocessing:
    """Returns the preprocessing of a folder.

    Args:
        settings: The content of `preprocessor_config.json`; empty without such a file.
        processor: The model type's processor, for a file that does not name one.
    """
    name = settings.get("image_processor_type") or settings.get("feature_extractor_type") or ""
    name = name.removesuffix("Fast").removesuffix("Pil")
    name = name.replace("FeatureExtractor", "ImageProcessor")
    name = name if name in PROCESSORS else processor
    stated = {key: value for key, value in settings.items() if value is not None}
    fields = {"do_rescale": True, "rescale_factor": 1 / 255, **PROCESSORS[name], **stated}
    resamples: dict[int, Any] = {number: method for method, number in PIL_RESAMPLE.items()}
    factor = fields["rescale_factor"] if fields["do_rescale"] else 1
    white = float(f"{255 * factor:.6g}")  # 1 even if the file has rounded 1 / 255
    normalizes = fields.get("do_normalize", True)
    mean, std = (fields["image_mean"], fields["image_std"]) if normalizes else ((0.0,), (1.0,))
    size, crop = (_shorter_side(fields[name]) for name in ("size", "crop_size"))
    # DeiT's processor crops squares; its original code resizes the shorter side.
    crops = fields["do_center_crop"] and size and crop
    return Preprocessing(
        mean=tuple(value / white for value in mean),
        std=tuple(value / white for value in std),
        interpolation=resamples.get(fields["resample"], "bilinear"),
        antialias=True,
        crop_fraction=min(crop / size, 1.0) if crops else None,
        rounding="none" if name in EXACT and not crops else "transformers",
    )


def _shorter_side(size):
    if not isinstance(size, dict):
        return size
    return size.get("shortest_edge") or min(size.get("height", 0), size.get("width", 0))


def write_processor(
    image_size: tuple[int, int], channels: int, pixels: Preprocessing, processor: str
) -> dict:
    """Returns the content of `preprocessor_config.json`.

    Args:
        image_size: The height and width of the model's images.
        channels: The number of channels of these images.
        pixels: The preprocessing of the model.
        processor: The model type's processor. CLIP's is written instead if this one cannot express
            the crop, as is the case for DeiT's, which first resizes to a square.
    """
    check_choice(pixels.interpolation, PIL_RESAMPLE, "interpolation")
    height, width = image_size
    crops = pixels.crop_fraction is not None
    config = {
        "image_processor_type": processor if not crops or processor in CROP else CROP[0],
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": PIL_RESAMPLE[pixels.interpolation],
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(pixels.mean) * (channels if len(pixels.mean) == 1 else 1),
        "image_std": list(pixels.std) * (channels if len(pixels.std) == 1 else 1),
        "do_center_crop": crops,
    }
    if pixels.crop_fraction is not None:
        config["size"] = {"shortest_edge": pixels.side_before_crop(min(height, width))}
        config["crop_size"] = {"height": height, "width": width}
    return config
