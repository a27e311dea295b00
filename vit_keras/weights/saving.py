"""Writes models' weights in any format; replaces a file only once the new one is complete."""

import dataclasses
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from vit_keras import models
from vit_keras.layers.base import refuse_quantized
from vit_keras.layers.common import check_choice
from vit_keras.models import architectures
from vit_keras.models.architectures import Numerics
from vit_keras.support import extras
from vit_keras.support.files import replacing, replacing_folder
from vit_keras.support.keras_internals import operation_of, weights_in_memory
from vit_keras.weights.containers import WRITERS
from vit_keras.weights.containers.keras_h5 import write_h5, write_with_digest
from vit_keras.weights.formats import registry, text
from vit_keras.weights.texts import TOKENIZER_FILES
from vit_keras.weights.weight_file import merge_configs

if TYPE_CHECKING:
    import torch


def save(
    model: keras.Model | models.ImageText, path: str | os.PathLike, format: str | None = None
) -> None:
    """Writes a model's weights in any format, with low-rank adapters merged.

    Args:
        model: The model, or two towers, which are written to a folder with format="huggingface".
        path: A file, or a folder if it has no suffix. A folder also gets the JSON files that the
            other project reads. Other files in it are kept.
        format: The name of a format, such as "timm". None writes the model's own `.keras` or
            `.weights.h5`.

    Raises:
        ValueError: If the format cannot hold the model, or if `path` does not have the format's
            suffix.
        ImportError: If the format needs a package that is not installed.

    Warns:
        UserWarning: If the format's own code computes with a different GELU or epsilon, prepares
            pictures differently, or returns logits although the model does not.

    Example:
        ```python
        vit_keras.weights.save(model, "vit-base-pets", format="huggingface")
        ```
    """
    path, towers = os.fspath(path), model if isinstance(model, models.ImageText) else None
    model = model.image if isinstance(model, models.ImageText) else model
    if towers is not None and (format != "huggingface" or os.path.splitext(path)[1]):
        raise ValueError(
            'Two towers are written to a folder with format="huggingface". Received: '
            f"{path!r}, format={format!r}; save `image` or `text` to write one tower"
        )
    if format in (None, "vit_keras"):
        _save_native(model, path)
        return
    check_choice(format, [name for name, row in registry.FORMATS.items() if row.suffixes], "format")
    refuse_quantized(model, f"The format {format!r}")
    model = models.merge_lora(model) if models.lora_layers(model) else model
    row = registry.FORMATS[format]
    arch = row.architecture.from_model(model)
    numerics = numerics_of(model, arch)
    suffix, is_folder = _target(row, path)
    configs: dict[str, dict] = {}
    if is_folder or not isinstance(arch, architectures.HybridArchitecture):
        configs = row.config_files(arch, numerics)
    registry.check_held(row, arch, model, merge_configs(configs))
    configs = configs if is_folder else {}
    theirs = row.numerics({}, merge_configs(configs)) or numerics
    for loss in _losses(row, arch, numerics, theirs, model.input_shape[1:], is_folder):
        warnings.warn(f"{row.name} {loss}", stacklevel=2)
    tensors = _tensors(model, row, arch, merge_configs(configs))
    if towers is not None:
        tensors, configs["config.json"] = _both(towers, tensors, configs["config.json"])
    note = json.dumps({"architecture": arch.arguments, "numerics": numerics.to_json()})
    # The weights of a folder and their configuration change together.
    replaced: Any = replacing_folder(path, keep=True) if is_folder else replacing(path)
    with replaced as new:
        _write(row, new, suffix, tensors, note, is_folder)
        for name, config in configs.items():
            (new / name).write_text(json.dumps(config, indent=2), encoding="utf-8")
        if towers is not None and towers.folder is not None:
            _copy_tokenizer(towers.folder, new)


def _copy_tokenizer(folder, new):
    for name in ("tokenizer.json", *TOKENIZER_FILES):
        if os.path.isfile(path := os.path.join(folder, name)):
            shutil.copyfile(path, new / name)


def _both(towers, tensors, vision):
    """Adds the text tower to the image tower's tensors and configuration."""
    refuse_quantized(towers.text, "A folder of transformers")
    arch = text.TextArchitecture.from_model(towers.text)
    config = text.config_of(arch, vision, towers.logit_bias)
    shape = () if towers.logit_bias is None else (1,)  # in CLIP and in SigLIP
    logits = {"logit_scale": towers.logit_scale, "logit_bias": towers.logit_bias}
    held = [(n, np.full(shape, x, "float32")) for n, x in logits.items() if x is not None]
    texts = _tensors(towers.text, text.TEXT_FORMATS["huggingface"][0], arch, {})
    outside = ("vision_model.", "visual_projection.", "text_projection.")
    for prefix, pairs in (("vision_model.", tensors), ("text_model.", texts)):
        held += [(n if n.startswith(outside) else f"{prefix}{n}", array) for n, array in pairs]
    return held, config


def _write(row, new, suffix, tensors, note, is_folder):
    """Writes a file, or the weights into a folder."""
    if suffix != ".weights.h5":
        return WRITERS[suffix](new / row.folder_name if is_folder else new, tensors, note)
    arrays = dict(tensors)
    for name, groups in row.h5_groups(list(arrays), is_folder).items():
        write_h5(new / name if is_folder else new, groups, arrays)


def to_timm(model: keras.Model, **arguments: Any) -> "torch.nn.Module":
    """Converts a Vision Transformer to an equivalent timm model, a torch module.

    Args:
        model: A model that `VisionTransformer` built, on any backend. Low-rank adapters are merged.
        **arguments: Arguments of `timm.create_model`, such as `drop_path_rate=0.1`. The model's
            dropout rates are not transferred.

    Returns:
        The module, on the CPU and in evaluation mode. It takes images `(B, C, H, W)`. Its weights
        are copies; `load(model, path)` reads its saved `state_dict()`.

    Raises:
        ValueError: timm has no class for the model. The message names the options that timm lacks.
        ImportError: timm is not installed.

    Example:
        ```python
        module = vit_keras.weights.to_timm(model)
        logits = module(torch.from_numpy(images).permute(0, 3, 1, 2))
        ```
    """
    timm = extras.require("timm")
    arch = registry.FORMATS["timm"].architecture.from_model(model)
    if arch.classifier_activation is not None:
        raise ValueError(
            "timm's models return logits, so the model must return them too. Received: "
            f"classifier_activation={arch.classifier_activation!r}"
        )
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the epsilon is set below; pixels do not matter
        save(model, folder := os.path.join(scratch, "model"), format="timm")
        module = timm.create_model(f"local-dir:{folder}", pretrained=True, **arguments)
        if not {"img_size", "patch_size"} & {*arguments}:  # timm may take 1x9 biases for 3x3
            tensors = extras.require("safetensors.torch").load_file(f"{folder}/model.safetensors")
            tables = {name: x for name, x in tensors.items() if name.endswith("bias_table")}
            module.load_state_dict(tables, strict=False)
    for part in module.modules():
        if hasattr(part, "eps"):
            part.eps = arch.layer_norm_epsilon
    return module.eval()


def save_model(model: keras.Model, path: str | os.PathLike) -> None:
    """Writes a `.keras` file atomically: readers never see an incomplete one.

    Args:
        model: The model.
        path: A path that ends in `.keras`.

    Raises:
        ValueError: If the path has another suffix.

    Example:
        ```python
        vit_keras.weights.save_model(model, "model.keras")
        ```
    """
    _save_native(model, os.fspath(path), (".keras",))


def numerics_of(model: keras.Model, arch) -> Numerics:
    """Returns how `model` computes and prepares images; `arch` is its architecture."""
    names = getattr(model, "class_names", None)
    return Numerics(
        preprocessing=models.preprocessing_of(model),
        resizing=models.resizing_of(model),
        class_names=None if names is None else tuple(names),
        task=dataclasses.replace(models.task_of(model), mean=None, std=None),  # see `_in_own_units`
        **{field: getattr(arch, field) for field in arch.numerics_fields},
    )


def _target(row, path):
    """Returns the suffix of the file to write, and whether `path` is a folder for it."""
    suffix = next((end for end in row.suffixes if path.endswith(end)), None)
    if suffix is not None:
        return suffix, False
    if row.folder_name and not os.path.splitext(path)[1]:
        return row.suffixes[0], True
    folder = ", or be a folder" if row.folder_name else ""
    raise ValueError(f"`path` must end in {' or '.join(row.suffixes)}{folder}. Received: {path!r}")


def _save_native(model, path, suffixes=(".keras", ".weights.h5")):
    if not path.endswith(suffixes):
        raise ValueError(
            f"Without a `format`, models are written to {' or '.join(suffixes)} files. "
            f"Received: {path!r}; formats are {', '.join(map(repr, registry.FORMATS))}"
        )
    with replacing(path) as temporary:
        if path.endswith(".keras"):
            model.save(temporary)
        else:
            write_with_digest(temporary, weights_in_memory(model))


def _tensors(model, row, arch, config):
    """Yields the file's (name, array) pairs, one link at a time."""
    variables, task = {variable.path: variable for variable in model.weights}, models.task_of(model)
    if task.std is not None and not any(path.endswith("head/bias") for path in variables):
        raise ValueError(
            "A model of numbers in their own units must have a head with a bias, to absorb their "
            f"mean. Received: a model without one, whose task has mean={task.mean}"
        )
    _check_head(model, arch)
    for link in row.links(arch, None, config):
        arrays = {path: keras.ops.convert_to_numpy(variables.pop(path)) for path in link.ours}
        ours = [_in_own_units(path, array, task) for path, array in arrays.items()]
        theirs = link.write(*(np.asarray(array, "float32") for array in ours))
        yield from zip(link.theirs, map(np.ascontiguousarray, theirs))
    if variables:
        raise ValueError(f"{row.name} files have no place for the model's {', '.join(variables)}")


# The layer that a classifier reads, if its name differs from the classifier's.
READ = {"distilled": "token", "gap_norm": "encoder_norm", "map": "MAPHead_0"}


def _check_head(model, arch):
    """Refuses a model whose classifier does not read the layer that its architecture names."""
    layers = {layer.name: layer for layer in model.layers}
    head = layers.get("pre_logits", layers.get("head"))
    of_vit = isinstance(arch, architectures.VisionTransformerArchitecture)
    if head is None or not of_vit or arch.options.boxes:  # heads of boxes read patches
        return
    usual = READ.get(arch.classifier, arch.classifier)
    if (read := operation_of(head.input).name) != usual:
        raise ValueError(
            f"In the files of other projects, {head.name!r} must read the layer "
            f"{usual!r} for classifier={arch.classifier!r}. Received: model "
            f"{model.name!r}, whose {head.name!r} reads {read!r}; save it as .keras or .weights.h5"
        )


def _in_own_units(path, array, task):
    """Rescales a head's weights so that its outputs no longer need `Task.std` and `Task.mean`."""
    if task.std is None or not path.startswith("head"):
        return array
    return array * np.array(task.std) + (np.array(task.mean) if path.endswith("/bias") else 0)


def _losses(row, arch, ours, theirs, shape, is_folder) -> Iterator[str]:
    """Yields how the answers of the format's own code will differ, for images `(H, W, C)`."""
    activation = getattr(arch, "classifier_activation", None)
    if activation is not None and not (row.holds_activation and is_folder):
        yield f"has no place for the classifier's activation {activation!r}: outputs will be logits"
    for field in arch.numerics_fields:
        here, there = getattr(ours, field), getattr(theirs, field)
        there = getattr(Numerics(), field) if there is None else there
        if here != there:
            yield (
                f"computes with {field}={there!r} and this model with {here!r}: the "
                "weights are written unchanged, and logits there will differ slightly"
            )
    if not row.folder_name or is_folder:  # otherwise only its folders hold a preprocessing
        pictures, others = ours.preprocessing, theirs.preprocessing
        if names := _differences(pictures, others, shape):
            said = lambda pixels: ", ".join(f"{name}={getattr(pixels, name)!r}" for name in names)
            yield (
                f"prepares pictures with {said(others)} and this model with {said(pictures)}, "
                "which cannot be written: probabilities of the same picture will differ there"
            )
        elif pictures.crop_fraction and others.rounding != "none" and shape[0] != shape[1]:
            yield (
                f"resizes differently before a crop of {shape[0]}x{shape[1]} pixels: "
                "probabilities of the same picture will differ there"
            )
    if is_folder and shape[-1] == 1:
        yield "does not turn pictures gray as this model does: pass gray pictures to its code"


def _differences(ours, theirs, shape):
    """Returns the fields whose values make different images `(H, W, C)` of the same pictures."""
    height, width, channels = shape
    ours, theirs = (pixels.for_channels(channels) for pixels in (ours, theirs))
    side = min(height or 224, width or 224)  # ResNets take any size
    numbers = {name: (getattr(ours, name), getattr(theirs, name)) for name in ("mean", "std")}
    names = [name for name, pair in numbers.items() if not np.allclose(*pair, atol=1e-6)]
    methods = ("interpolation", "antialias", "levels", "bands")
    names += [name for name in methods if getattr(ours, name) != getattr(theirs, name)]
    roundings = {ours.rounding, theirs.rounding}
    moves_crop = "transformers" in roundings or round(side / (ours.crop_fraction or 1), 6) % 1
    cuts_elsewhere = ours.crop_fraction and len(roundings) > 1 and moves_crop
    if cuts_elsewhere or (ours.rounds_levels and not theirs.rounds_levels):
        names.append("rounding")  # the other way around, levels differ by less than 1e-3
    if ours.side_before_crop(side) != theirs.side_before_crop(side):
        names.append("crop_fraction")
    return names
