"""The Vision Transformers of Hugging Face's transformers, with a `model_type` per family.

Files have the names that transformers writes to disk, with or without the prefix of a class with a
head; the in-memory names of transformers 5 are also read. The pooler of a `ViTModel` becomes
`pre_logits`. Text towers, pre-training decoders and mask tokens are left out.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras.layers import Rope
from vit_keras.layers.common import WITH_NO_OBJECT, ViTOptions, changed_options, check_choice, pair
from vit_keras.models import Preprocessing
from vit_keras.models.architectures import Numerics
from vit_keras.support.checks import listed
from vit_keras.support.interpolation import resize_relative_table
from vit_keras.support.tasks import CLASSES, Task
from vit_keras.variants.families import CLIP, HALF, IMAGENET
from vit_keras.weights.formats.base import LEARNED, Format, covered_positions, gelu_of, per_channel
from vit_keras.weights.formats.huggingface.model_types import MODEL_TYPES, by_names, type_for
from vit_keras.weights.formats.tensor_names import constant, unchanged, unread, zeros

# Other model types: those whose configurations have the image tower's as `vision_config`, and other
# names for image towers.
CLIPS = ("metaclip_2", "chinese_clip", "altclip")
TOWERS = {
    **{row.whole: row.name for row in MODEL_TYPES.values() if row.whole},
    **dict.fromkeys(("idefics_vision", *CLIPS), "clip_vision_model"),
    **{f"{name}_vision_model": "clip_vision_model" for name in CLIPS},
    **{f"{name}_vision": "siglip_vision_model" for name in ("idefics2", "idefics3", "smolvlm")},
    "vit_mae": "vit",
    "data2vec-vision": "beit",
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


def _tower_config(config):
    """Returns the configuration of the image tower, with the labels and task of the outer one."""
    tower = config.get("vision_config")
    if not isinstance(tower, dict):
        return config
    outer = [key for key in config if key.endswith(".json") or key in ("id2label", "problem_type")]
    whole = config.get("model_type")
    if is_part(config) and TOWERS.get(part := tower.get("model_type", ""), part) in MODEL_TYPES:
        whole = part
    inner = config.get("vision_config_dict") or tower  # in old files
    return {**inner, **{key: config[key] for key in outer}, "model_type": whole}


def _read_config(config, names):
    """Returns the model type, and the fields of its configuration with defaults for absent ones.

    Args:
        config: The configuration of an image tower, alone or in a larger model.
        names: The names of the file's tensors, which determine the type if no configuration does.

    Raises:
        ValueError: If there is no such type, or if the file's tensors belong to another type.
    """
    tower = _tower_config(config)
    model_type = tower.get("model_type")
    name = by_names(names).name if model_type is None else TOWERS.get(model_type, model_type)
    check_choice(name, MODEL_TYPES, "model_type")
    row = MODEL_TYPES[name]
    if names and not row.held <= names:
        raise ValueError(
            f"config.json says model_type={name!r}, whose files have {listed(sorted(row.held))}. "
            f"Received: a file with the tensors of {by_names(names).name!r}"
        )
    stated = {key: value for key, value in tower.items() if value is not None}
    return row, {**row.fields, **DEFAULTS.get(model_type, {}), **stated}


WRITTEN_GELU = {"exact": "gelu", "tanh": "gelu_pytorch_tanh", "quick": "quick_gelu"}
# By `Task.kind`; the pipeline computes probabilities accordingly.
PROBLEMS = {"labels": "multi_label_classification", "numbers": "regression"}
# Fields of a configuration, and the arguments of a model that they must equal.
SIZES = {"hidden_size": "hidden_size", "num_hidden_layers": "num_layers"}
SIZES |= {"intermediate_size": "mlp_dim"}
IMAGE_SIZES = {**SIZES, "num_channels": "channels", "patch_size": "patch_size"}


def check_fields(fields: dict, expected: dict[str, Any]) -> None:
    """Raises ValueError with a line for each field that contradicts the `expected` one.

    Args:
        fields: The configuration.
        expected: The fields that follow from the tensors.
    """
    wrong = [
        f"{field} is {fields[field]} in config.json, {value} in the tensors"
        for field, value in expected.items()
        if fields.get(field) not in (None, value)
    ]
    if wrong:
        raise ValueError(
            "A folder's config.json must describe its tensors. Received:\n  " + "\n  ".join(wrong)
        )


def _check_design(fields, arguments, row):
    """Checks the fields and the number of labels in an image tower's configuration."""
    fields = {**fields, "number of labels": len(fields.get("id2label", ())) or None}
    if "patch_size" in fields:
        fields["patch_size"] = pair(fields["patch_size"], "patch_size")
    held = {**LEARNED, **vars(ViTOptions.among(arguments)), **arguments}
    expected = {field: held[name] for field, name in IMAGE_SIZES.items()} | row.derived(held)
    has_classes = held["head_use_bias"] and not str(held["boxes"]).startswith("texts")
    if has_classes and held["num_classes"]:
        expected["number of labels"] = held["num_classes"]
    check_fields(fields, expected)


def written_sizes(arch, names: dict[str, str]) -> dict[str, Any]:
    """Returns the fields of a tower's configuration that every type has."""
    return {
        **{field: getattr(arch, name) for field, name in names.items()},
        "num_attention_heads": arch.num_heads,
        "hidden_act": WRITTEN_GELU[arch.gelu],
        "layer_norm_eps": arch.layer_norm_epsilon,
    }


def _kind_of_head(arch):
    """Returns "", "classifier", "projection" or "boxes", as in `ModelType.classes`."""
    if arch.num_classes is None:
        return ""
    kind = "classifier" if arch.options.head_use_bias else "projection"
    return kind if arch.options.boxes is None else "boxes"


def _write_config(arch, row, numerics):
    """Returns the content of `config.json`."""
    head = _kind_of_head(arch)
    if (arch.classifier, head) not in row.classes:
        raise ValueError(
            f"transformers' {row.name!r} has only the classes {', '.join(row.classes.values())}. "
            f"Received: a model with classifier={arch.classifier!r}, "
            f"num_classes={arch.num_classes}, boxes={arch.options.boxes!r}. Save it as .keras"
        )
    sides = {name: getattr(arch, name) for name in ("image_size", "patch_size")}
    config = {
        "model_type": row.name,
        **written_sizes(arch, IMAGE_SIZES),
        **{k: v[0] if row.square or v[0] == v[1] else list(v) for k, v in sides.items()},
        **row.written(arch),
    }
    if arch.representation_size is not None:
        config |= {"pooler_output_size": arch.representation_size, "pooler_act": "tanh"}
    if head in ("classifier", "boxes"):
        names = numerics.class_names or [f"LABEL_{i}" for i in range(arch.num_classes)]
        outer = {"model_type": row.whole, "vision_config": config} if row.whole else config
        config = outer | labels_of(names, numerics.task.kind)
    return {"architectures": [row.classes[arch.classifier, head]], **config, "dtype": "float32"}


def labels_of(names: Sequence[str], kind: str) -> dict:
    """Returns the fields for the names of classes and the kind of their task."""
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
        **({"problem_type": PROBLEMS[kind]} if kind in PROBLEMS else {}),
    }


PROCESSOR = "preprocessor_config.json"
RESAMPLE: dict[int, Any] = {2: "bilinear", 3: "bicubic"}  # by Pillow's numbers
# The defaults of each class, for missing fields: colors, resample, size and the size of a crop.
PROCESSORS: dict[str, tuple[dict[str, Any], int, int, int | None]] = {
    "ViTImageProcessor": (HALF, 2, 224, None),
    "DeiTImageProcessor": (HALF, 3, 256, 224),
    "BeitImageProcessor": (HALF, 3, 224, None),
    "BitImageProcessor": (CLIP, 3, 224, 224),
    "DINOv3ViTImageProcessor": (IMAGENET, 2, 224, None),
    "CLIPImageProcessor": (CLIP, 3, 224, 224),
    "SiglipImageProcessor": (HALF, 3, 224, None),
    "Siglip2ImageProcessor": (HALF, 2, 224, None),
    "YolosImageProcessor": (IMAGENET, 2, 800, None),
    "OwlViTImageProcessor": (CLIP, 3, 768, None),
    "Owlv2ImageProcessor": (CLIP, 2, 960, None),
}
EXACT = ("DINOv3ViTImageProcessor",)  # it scales levels to floats before resizing
CROP = ("CLIPImageProcessor", "BitImageProcessor")


def _read_processor(settings, processor):
    """Returns the preprocessing of a folder.

    Args:
        settings: The content of `preprocessor_config.json`; empty without such a file.
        processor: The model type's processor, for a file that does not name one.
    """
    name = settings.get("image_processor_type") or settings.get("feature_extractor_type") or ""
    name = re.sub("(FeatureExtractor|ImageProcessor)(Fast|Pil)?$", "ImageProcessor", name)
    name = name if name in PROCESSORS else processor
    colors, resample, size, crop = PROCESSORS[name]
    fields: dict[str, Any] = {"do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
    fields |= {f"image_{key}": values for key, values in colors.items()}
    fields |= {"resample": resample, "size": size, "do_center_crop": crop, "crop_size": crop or 224}
    fields |= {key: value for key, value in settings.items() if value is not None}
    factor = fields["rescale_factor"] if fields["do_rescale"] else 1
    white = float(f"{255 * factor:.6g}")  # 1 even if the file has rounded 1 / 255
    plain = (0.0,), (1.0,)
    mean, std = (fields["image_mean"], fields["image_std"]) if fields["do_normalize"] else plain
    size, crop = (_shorter_side(fields[name]) for name in ("size", "crop_size"))
    # DeiT's processor crops squares; its original code resizes the shorter side.
    crops = fields["do_center_crop"] and size and crop
    return Preprocessing(
        mean=tuple(value / white for value in mean),
        std=tuple(value / white for value in std),
        interpolation=RESAMPLE.get(fields["resample"], "bilinear"),
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
    resample = {name: number for number, name in RESAMPLE.items()}
    check_choice(pixels.interpolation, resample, "interpolation")
    size = dict(zip(("height", "width"), image_size))
    config = {
        "image_processor_type": processor,
        "do_resize": True,
        "size": size,
        "resample": resample[pixels.interpolation],
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": per_channel(pixels.mean, channels),
        "image_std": per_channel(pixels.std, channels),
        "do_center_crop": pixels.crop_fraction is not None,
    }
    if pixels.crop_fraction is not None:
        config["image_processor_type"] = processor if processor in CROP else CROP[0]
        config["size"] = {"shortest_edge": pixels.side_before_crop(min(image_size))}
        config["crop_size"] = size
    return config


# The replacements, made in this order, that turn all spellings of a name into the one on disk,
# without the prefix of a classifier's backbone.
ATTENTION = r"^(encoder\.layer\.\d+\.attention\.)"
RENAMED = {
    r"vision_model\.encoder\.layer\.": "encoder.layers.",  # AltCLIP's in version 5
    r"^((owlvit|owlv2)\.)?((vit|deit|beit|data2vec_vision|ijepa|dinov2|dinov2_with_registers|"
    r"dinov3_vit|vision_model)\.)?(model\.)?": "",
    r"^layers\.(\d+)\.mlp\.fc1\.": r"encoder.layer.\1.intermediate.dense.",
    r"^layers\.(\d+)\.mlp\.fc2\.": r"encoder.layer.\1.output.dense.",
    r"^layers\.": "encoder.layer.",
    rf"{ATTENTION}q_proj\.": r"\1attention.query.",
    rf"{ATTENTION}k_proj\.": r"\1attention.key.",
    rf"{ATTENTION}v_proj\.": r"\1attention.value.",
    rf"{ATTENTION}o_proj\.": r"\1output.dense.",
    r"^(encoder\.layer\.\d+\.)(relative_position_bias\.)": r"\1attention.attention.\2",
    r"^shared_position_bias\.": "encoder.relative_position_bias.",
    r"^(.*\.relative_position_index)$": r"relative_position_index.\1",
}
# The prefixes of classifiers' tensors.
HEADS = (
    *("classifier.", "cls_classifier.", "distillation_classifier.", "visual_projection."),
    *("class_labels_classifier.", "bbox_predictor.", "class_head.", "box_head."),
    *("objectness_head.", "layer_norm.", "pooler.dense."),
)
# Fields of DINOv3's configuration, and the paths of the biases that they switch on or off.
BIASES = {"mlp_bias": "MlpBlock_3/.*/bias", "proj_bias": "out/bias"}


def _unused(arch, names):
    """Returns the tensors that the class of a file holds but does not use."""
    classifies = "classifier.weight" in names
    unused = {
        "visual_projection.": str(arch.options.boxes).startswith("texts"),
        "pooler.dense.": classifies,
        "head.": classifies and arch.classifier != "map",
        "post_layernorm.": classifies and not arch.options.final_norm,
    }
    return [k for k in names if any(k.startswith(start) and unused[start] for start in unused)]


def _no_registers(arch, row):
    """Links the empty tensor that a class with registers needs for a model without them."""
    absent = row.names.registers and not arch.options.num_registers
    return [constant(row.names.registers, np.zeros((1, 0, arch.hidden_size)))] if absent else []


def _transposed_table(link, arch, size):
    """Reads BEiT's table like transformers, which swaps its rows and columns and resizes it."""
    if not link.ours[0].endswith("relative_2d/table"):
        return link
    rows, columns = (side // patch for side, patch in zip(size, arch.patch_size))
    turn = lambda table: resize_relative_table(table, (columns, rows), (rows, columns))
    return link.mapped(turn, unchanged)


def _links_to_write(arch, config):
    """Links all variables of a model, and the other tensors that its transformers class needs."""
    row = _read_config(config, set())[0] if config else type_for(arch)
    fillers = [constant(name, value) for name, value in row.fillers(arch).items()]
    base = (row.base or f"{row.name}.") if _kind_of_head(arch) else ""
    prefixed = lambda name: name if name.startswith(HEADS) else f"{base}{name}"
    links = [*row.names.links(arch), *fillers, *_no_registers(arch, row)]
    return [link.renamed(prefixed) for link in links]


def _covered(arguments, row, shapes, fields):
    """Returns the size of images and the tokens that positions cover."""
    count = shapes.get(row.names.positions, (0, 0))[-2]  # (N, D) or (1, N, D)
    size, strict = fields.get("image_size"), True
    if size is None and not row.names.linear_patches and "model_type" in fields:
        size, strict = row.image_size, False
    return covered_positions(arguments, count, size, row.covers, strict)


class HuggingFace(Format):
    suffixes = (".safetensors", ".bin")
    folder_name = "model.safetensors"
    head = HEADS
    # The text tower, the pre-training decoder, and computed numbers.
    ignored = (
        *("text_model.", "text_projection.", "logit_", "decoder.", "lm_head."),
        *("embeddings.mask_token", "embeddings.position_ids", "rope_embeddings."),
        "relative_position_index.",
    )

    def detect(self, names):
        return any(row.held <= names for row in MODEL_TYPES.values())

    def wraps(self, names):
        return "layernorm.weight" in names and "pooler.dense.weight" not in names

    def canonical(self, name):
        for pattern, new in RENAMED.items():
            name = re.sub(pattern, new, name)
        return name

    def links(self, arch, names, config):
        if names is None:
            return _links_to_write(arch, config)
        row, fields = _read_config(config, names)
        result = row.names.links(arch, names)
        for field in BIASES.keys() & row.fields:
            if not fields[field]:
                result = [zeros(*k.ours) if re.search(BIASES[field], k.path) else k for k in result]
        rows, columns = pair(fields.get("image_size", 1), "image_size")
        if rows != columns:
            result = [_transposed_table(link, arch, (rows, columns)) for link in result]
        if row.names.registers in names:
            result += _no_registers(arch, row)
        return [*result, unread(_unused(arch, names))]

    def infer(self, shapes, config):
        row, fields = _read_config(config, set(shapes))
        tensors, design = row.names, row.design(set(shapes))
        channels = fields.get("num_channels", 3)
        arguments = tensors.sizes(shapes, design["classifier"], channels=channels) | design
        if tensors.positions and not tensors.relative:  # which only BEiT may lack
            arguments.pop("position_embedding", None)
        if "rope_theta" in row.fields:
            arguments["rope"] = Rope(base=fields["rope_theta"], centered=True)
        if arguments.get("boxes") in WITH_NO_OBJECT:
            arguments["num_classes"] -= 1
        if arguments["num_classes"] is not None:
            arguments["representation_size"] = None  # a pooler beside a classifier has no effect
        if "model_type" in fields:
            _check_design(fields, arguments, row)
            if arguments["representation_size"] is not None:  # `pre_logits` has tanh
                check_choice(fields.get("pooler_act", "tanh"), ("tanh",), "pooler_act")
        if "model_type" in fields or config.get("num_attention_heads"):
            arguments["num_heads"] = fields["num_attention_heads"]
        return changed_options({**arguments, **_covered(arguments, row, shapes, fields)})

    def numerics(self, shapes, config):
        row, fields = _read_config(config, set(shapes))
        labels = {int(i): name for i, name in fields.get("id2label", {}).items()}
        names = tuple(labels[i] for i in sorted(labels))
        is_named = any(name != f"LABEL_{i}" for i, name in enumerate(names))
        kinds = [kind for kind, text in PROBLEMS.items() if text == fields.get("problem_type")]
        return Numerics(
            gelu=gelu_of(fields["hidden_act"], bool(fields.get("use_gated_mlp")), "hidden_act"),
            layer_norm_epsilon=fields["layer_norm_eps"],
            preprocessing=_read_processor(config.get(PROCESSOR) or {}, row.processor),
            resizing=row.resizing,
            class_names=names if is_named else None,
            task=Task(kinds[0]) if kinds else CLASSES,
        )

    def assumption(self, shapes, config, overrides):
        resample = (config.get(PROCESSOR) or {}).get("resample")
        if resample in (None, *RESAMPLE):
            return ""
        return f"a model that resizes with 'bilinear'; {PROCESSOR} has another resample={resample}"

    def as_read(self, arch):
        return type_for(arch).as_read(arch)

    def config_files(self, arch, numerics):
        row = type_for(arch, numerics.resizing)
        pixels = numerics.preprocessing
        processor = write_processor(arch.image_size, arch.channels, pixels, row.processor)
        if row.processor == "Siglip2ImageProcessor":
            processor |= {"patch_size": arch.patch_size[0], "max_num_patches": arch.num_positions}
        return {"config.json": _write_config(arch, row, numerics), PROCESSOR: processor}
