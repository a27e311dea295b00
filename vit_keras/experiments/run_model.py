"""Builds a run's model with its weights, opens its checkpoints, and opens the run's data."""

import dataclasses
import json
import os
import pathlib
import typing
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from vit_keras import data, evaluation, models, runs, variants, weights
from vit_keras.config import Config, DistillConfig, ModelConfig, PretextConfig
from vit_keras.config.model import DEFAULTS, SIZES, STEM
from vit_keras.config.run import addresses_of, change_addresses
from vit_keras.layers.common import OPTION_NAMES
from vit_keras.models import scale_head
from vit_keras.support.checks import read_json, with_checksums
from vit_keras.support.files import without_commit, write_text
from vit_keras.support.preprocessing import with_tuples
from vit_keras.support.tasks import CLASSES, Task
from vit_keras.training import checkpoints
from vit_keras.training.loop import compile_model
from vit_keras.training.optimizers import use_average
from vit_keras.weights.description import variant_name
from vit_keras.weights.weight_file import open_weight_file


def pin_weights(config: Config) -> Config:
    """Pins the commits or versions of the Hub models that a run starts from and learns from.

    An address without a version gets the one in the `config.yaml` of the run's folder, so a run
    continues as it began, even after new uploads. A new run gets the newest version.

    Args:
        config: The configuration; its `workdir` is the folder, by default `runs.default_workdir`.

    Raises:
        OSError: A model is not in the cache of the Hub's package and cannot be downloaded.
    """
    earlier = runs.run_of(runs.folder_of(config), complete=False)
    known = {without_commit(path): path for path in addresses_of(earlier.config)} if earlier else {}
    return change_addresses(config, lambda path: known.get(path) or weights.pinned_address(path))


class Record(typing.TypedDict):
    """The content of `teacher.json`: a checksum for each file."""

    sha256: dict[str, str]


def _find_teacher(config):
    """Returns the file or folder of a teacher's weights; downloads it if necessary."""
    return runs.find_weights(config.teacher or "", config.teacher_variant, "distill.teacher")


def check_teacher(config: DistillConfig, folder: pathlib.Path) -> None:
    """Writes `teacher.json` to a run's folder, or compares the teacher with an existing file.

    Without a teacher, this function does nothing.

    Raises:
        ValueError: The teacher's weights have changed since the run began.
    """
    if not config.teacher:
        return
    files = weights.describe(_find_teacher(config))["files"]
    now = {pathlib.Path(file["path"]).name: file["sha256"] for file in files}
    record = folder / "teacher.json"
    if not record.exists() and not any(folder.glob("checkpoints/step_*")):
        written = with_checksums({"teacher": config.teacher, "sha256": now})
        return write_text(record, json.dumps(written, indent=1))
    then = read_json(record, Record, runs.RESTORE)["sha256"]
    if changed := sorted({name for name, _ in then.items() ^ now.items()}):
        raise ValueError(
            f"The teacher {config.teacher!r} has changed since the run in {str(folder)!r} began "
            f"({', '.join(changed)}). {runs.RESTORE}"
        )


def _segmenter(model, num_classes, config):
    options = {"head_bias": config.model.head_bias, "seed": config.seed}
    return models.segmenter(model, num_classes, config.model.decoder, **options)


def _detector(model, num_classes, config):
    head = config.model.detector, config.model.num_boxes
    return models.with_joined_boxes(models.detector(model, num_classes, *head, seed=config.seed))


def _of_texts(config, class_names, options):
    """Returns the weights' image tower with the embeddings of `model.labels` as its head."""
    path = runs.find_weights(config.model.weights, config.model.variant)
    with open_weight_file(path) as file:
        held = {"head_use_bias": True, "num_classes": None, **file.arguments}
    options |= {name: held[name] for name in ("head_use_bias", "num_classes")}
    tower = weights.load(models.from_model_config(config.model, **options), path)
    adapter = {"adapter_dim": config.model.adapter_dim, "seed": config.seed}
    return weights.with_text_head(tower, config.model.labels, class_names, **adapter)


WITH_HEAD = {"masks": _segmenter, "boxes": _detector}  # kinds whose head is not one layer
# A hybrid or a ResNet of other sizes takes its constructor from one of these variants.
HYBRID, RESNET = "R50+B/16", "R50x1"


def initial_model(config: Config, class_names: Sequence[str], task: Task = CLASSES):
    """Returns the model that a run starts from, with a new head unless it learns features.

    Args:
        config: The run, after `complete_model`.
        class_names: Names of the classes, labels or numbers in the order of the outputs.
        task: What the model learns.
    """
    headless = not class_names or (config.distill.teacher and not config.learns_labels)
    with_head = WITH_HEAD.get(task.kind) if config.learns_labels and class_names else None
    num_classes = None if headless or with_head else len(class_names)
    options: dict[str, Any] = {"num_classes": num_classes, "seed": config.seed, "name": config.name}
    if config.model.labels:
        model = _of_texts(config, class_names, options)
    else:
        model = models.from_model_config(config.model, **options)
        if config.model.weights:
            path = runs.find_weights(config.model.weights, config.model.variant)
            weights.load(model, path, head="drop")  # the run's own head starts at zero
    resize = {name: getattr(config.model, name) for name in ("antialias", "rounding")}
    chosen: dict[str, Any] = {n: value for n, value in resize.items() if value is not None}
    chosen |= {"levels": config.data.white or 255.0, "bands": config.data.bands}
    model.preprocessing = dataclasses.replace(model.preprocessing, **chosen)
    if with_head:
        model = with_head(model, len(class_names), config)
    if not headless:
        model.class_names, model.task = class_names, task
    return model


def complete_model(config: Config) -> Config:
    """Fills the null fields of `config.model` with the values of `model.weights`.

    Args:
        config: A run. Without `model.weights`, it is returned unchanged. If its `workdir` already
            holds the run, the weights are those that it began with, as in `pin_weights`.

    Returns:
        The configuration with the complete architecture of the weights; only the sizes of images
        and patches and the number of channels may differ.

    Raises:
        ValueError: The file lacks something that the model needs, or `config.model` contradicts it.
        OSError: The file cannot be read or downloaded.
    """
    if config.workdir:  # the name of a default folder is known only with the complete model
        config = pin_weights(config)
    if config.distill.teacher:
        _find_teacher(config.distill)  # may download it here too
    model = config.model
    if model.weights is None:
        return config
    with open_weight_file(runs.find_weights(model.weights, model.variant)) as file:
        arguments = with_tuples(file.arguments)
        if file.numerics is not None:
            arguments["gelu"] = file.numerics.gelu
        name = variant_name(arguments, file.called)
    _check_sizes(model, arguments)
    values = _fields(model, arguments, name)
    null = [name for name in values if getattr(model, name) is None]
    # `weights.load` adapts the model to its source, whatever GELU it was built with.
    changed = {*null, "gelu"} & {*values}
    model = dataclasses.replace(model, **{name: values[name] for name in changed})
    needed = [*DEFAULTS, *(() if model.variant else SIZES)]
    if missing := [f"`model.{name}`" for name in needed if getattr(model, name) is None]:
        raise ValueError(
            f"The weights {model.weights!r} do not give {' and '.join(missing)}. "
            f"Give {' and '.join(missing)} too"
        )
    return dataclasses.replace(config, model=model)


def _check_sizes(model: ModelConfig, arguments):
    """Refuses sizes that the weights do not have; patches of another size are resized."""
    row = variants.architecture(model.variant) if model.variant else {}
    for name in (*SIZES[1:], *STEM):  # SIZES begins with the patch's
        requested, held = getattr(model, name) or row.get(name), arguments.get(name)
        if None not in (requested, held) and requested != held:
            cause = f"{name}={requested}" if getattr(model, name) else f"variant={model.variant!r}"
            raise ValueError(
                f"The weights {model.weights!r} have {name}={held}. Received: {cause}. Leave it out"
            )


def _fields(model: ModelConfig, arguments, name) -> dict[str, Any]:
    """Returns the variant of the weights, the differences from it, and their other fields."""
    is_resnet, has_stem = "hidden_size" not in arguments, arguments.get("resnet_layers") is not None
    name = model.variant or name or ((RESNET if is_resnet else HYBRID) if has_stem else None)
    row = variants.architecture(name) if name else {}
    for side in ("image_size", "patch_size"):
        size = arguments.get(side)
        if isinstance(size, tuple) and len({*size}) == 1:
            arguments[side] = size[0]
    sizes = {}
    if not model.variant:  # which has the sizes of the weights, or they are resized to its patches
        held = {size: arguments.get(size) for size in (*SIZES, *STEM)}
        sizes = {size: value for size, value in held.items() if value != row.get(size)}
    others = {field: arguments[field] for field in DEFAULTS if field in arguments}
    if is_resnet:  # which has no other fields
        others = DEFAULTS | {n: others[n] for n in ("channels", "image_size") if others.get(n)}
    options = None
    if not has_stem:
        among = lambda values: dataclasses.asdict(models.ViTOptions.among(values))
        ours, theirs = {**among(arguments), "head_use_bias": True}, among(row)  # a new head
        changed = {name: ours[name] for name in OPTION_NAMES if ours[name] != theirs[name]}
        options = json.loads(json.dumps(changed)) or None
    positions = {"position_embedding": "learned", "position_embedding_at": "stem"}
    return {"variant": name, **sizes, **positions, **others, "options": options}


def build_compiled(config, class_names, task):
    """Returns a run's compiled model, and the encoder or student in it (or the model again).

    Args:
        config: The run, as for `initial_model`.
        class_names: As for `initial_model`.
        task: As for `initial_model`.
    """
    model = encoder = initial_model(config, class_names, task)
    if config.pretext.is_active:
        steps = config.total_steps, config.optimizer.accumulation_steps
        model = models.pretext_model(encoder, config.pretext, config.seed, *steps)
    if config.lora.rank:
        lora = config.lora
        models.add_lora(model, lora.rank, lora.layers, lora.alpha, lora.train, config.seed)
    if config.distill.teacher:
        teacher = weights.open(_find_teacher(config.distill))
        model = models.distillation_model(encoder, teacher, config.distill, config.seed)
    compile_model(model, config)
    return model, encoder


def trained_part(
    model: keras.Model, config: Config, class_names: Sequence[str], task: Task
) -> keras.Model:
    """Returns the part of a trained model to save: its encoder or student, or the model itself.

    Args:
        model: A model of `build_compiled`, after training.
        config: The run.
        class_names: As for `initial_model`.
        task: As for `initial_model`.
    """
    if config.pretext.is_active or config.distill.teacher:
        copy = models.copy_encoder if config.pretext.is_active else models.copy_student
        model = copy(model, initial_model(config, class_names, task))
    if model.task.mean is not None:  # the head then returns numbers that are not standardized
        scale_head(model, model.task.std, model.task.mean)
    model.task = Task(model.task.kind)  # drops what only training needs
    return model


def open_checkpoint(path: str | os.PathLike) -> keras.Model:
    """Opens the model in a checkpoint of a run, whichever processes wrote it.

    It has the weights that the run would have saved at that update: averaged with
    `optimizer.ema_decay`, and with merged adapters. It is not calibrated.

    Args:
        path: The folder of the checkpoint, such as `runs/pets/checkpoints/step_000000500`, in the
            folder of its run.

    Returns:
        The model, compiled as in the run unless the run had a pretext task, a teacher or adapters.

    Raises:
        FileNotFoundError: The checkpoint is not in the folder of a run.
        ValueError: The checkpoint is damaged, or does not hold a whole model.

    Example:
        ```python
        model = experiments.open_checkpoint("runs/pets/checkpoints/step_000000500")
        vit_keras.weights.save(model, "pets.npz", format="google")
        ```
    """
    path = pathlib.Path(path).absolute()
    config = runs.find_run(folder := path.parents[1], complete=False).config
    if config.cache_features or config.task == "numbers":
        raise ValueError(
            "Checkpoints lack the frozen layers in a run with cache_features, and the mean of the "
            f"labels in a run of numbers. Received: {str(path)!r}. Give the folder of the run "
            "after its last update"
        )
    names = data.recorded_classes(folder)
    shares = (1 / len(names),) * len(names) if names else None  # the loss is not used
    described = names, Task(config.task, shares=shares)
    model, _ = build_compiled(config, *described)
    checkpoints.load(model, path, remedy="Give another step of the run")
    use_average(model)
    model = trained_part(model, config, *described)
    return models.merge_lora(model) if config.lora.rank else model


def fit_to_development(model: keras.Model, split: "data.Split", config: Config) -> None:
    """Fits what must be fitted on a development split, not on training or test images.

    With `config.calibrate`, the head's weights are divided by a temperature. Each label, and each
    class of boxes, gets the threshold that gives the highest F1. The task gets the quantiles and
    floors of `evaluation.conformal`, except for masks and boxes.

    Args:
        model: The trained model; changed in place.
        split: The development split.
        config: The run.
    """
    predictor = evaluation.make_predictor(model)
    fitted: dict[str, Any] = {}
    if config.task == "boxes":
        options = evaluation.TileOptions(batch=config.batch_eval)
        pairs = evaluation.predict_split(predictor, split, options)
        fitted["thresholds"] = evaluation.best_box_thresholds(*pairs, predictor.num_classes)
    elif config.task != "masks":
        outputs, labels = predictor.outputs(predictor.batches(split, config.batch_eval))
        if config.calibrate:
            temperature = evaluation.fit_temperature(outputs, labels, model.task)
            scale_head(model, 1 / temperature)
            fitted["temperature"] = temperature
            outputs = outputs / np.float32(temperature)
        shares = predictor.as_probabilities(outputs)
        if config.task == "labels":
            fitted["thresholds"] = evaluation.best_thresholds(shares, labels)
        fitted["quantiles"] = evaluation.fit_quantiles(shares, labels, model.task)
        if config.task == "classes":
            fitted["floors"] = evaluation.fit_floors(shares)
    model.task = dataclasses.replace(model.task, **fitted)


def open_data(config: Config) -> "tuple[Config, data.Dataset, data.Split]":
    """Opens the data set of a run.

    Args:
        config: The run, after `complete_model`.

    Returns:
        The configuration, completed with what depends on the data set (levels, task, loss and
        number of updates); the data set; and its training split.
    """
    loaded = config.model.channels, config.data, config.task, config.learns_labels
    dataset = data.load(config.dataset, *loaded)
    config = dataclasses.replace(config, data=data.complete_levels(config.data, dataset))
    train, *_ = data.train_dev_test(dataset, config.data)
    return config.complete_task(dataset.kind).count_steps(len(train)), dataset, train


def first_training_images(
    config: Config, count: int = 36
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...], Task]:
    """Makes the first augmented images of a run with its own pipeline, as pixels.

    Args:
        config: The run. A pretext task masks no patches here; for DINO, images are the first views.
        count: An even number of images; fewer if there are fewer training images.

    Returns:
        The images, `(N, H, W, C)` uint8, or float32 for more than 8 bits; the targets, `(N, K)`,
        such as one-hot or mixed classes; the names of the outputs; and the task.

    Raises:
        ValueError: If the configuration does not suit the data set, or if an image cannot be read.
        OSError: If the data set or the weights cannot be read.

    Example:
        ```python
        config = vit_keras.config.read_config("digits")
        images, *described = experiments.first_training_images(config, count=16)
        figures.picture_sheet(images, data.captions_of(*described), "sheet.png")
        ```
    """
    config, dataset, train = open_data(complete_model(config))
    task = data.learned_task(dataset, train, config)
    model = initial_model(config, dataset.class_names, task)
    count = min(count, max(2, len(train) // 2 * 2))  # whole pairs, since pairs are mixed
    whole = dataclasses.replace(config.optimizer, accumulation_steps=1)
    one: dict[str, Any] = {"batch": count, "total_steps": 1, "steps_per_execution": 1}
    one_batch = dataclasses.replace(config, optimizer=whole, pretext=PretextConfig(), **one)
    images_of = (model.input_shape[1:3], model.preprocessing)
    feed = lambda run: data.Feed(dataset, run, *images_of, task=task)
    ((images, labels),) = feed(one_batch).training(0)
    if config.pretext.is_dino:  # the views of the same images
        one_batch = dataclasses.replace(one_batch, pretext=config.pretext)
        (((views, _), _),) = feed(one_batch).training(0)
        images = views[:, 0]
    return data.pixels_of(images, model.preprocessing), labels, dataset.class_names, task
