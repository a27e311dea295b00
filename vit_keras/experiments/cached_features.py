"""Trains the last layers of a model on features that the frozen layers compute once."""

import hashlib
import json
import pathlib
import time
import typing

import keras

from vit_keras import data, models
from vit_keras.files import recover, replacing_folder, sha256
from vit_keras.json_files import read_json
from vit_keras.runs import Run
from vit_keras.training.loop import compile_frozen, train

FOLDER = "features"
SPLITS = ("train", "test")


class Meta(typing.TypedDict):
    """What `meta.json` must hold: checksums of the source and of each array."""

    weights: str
    data: str
    sha256: dict[str, str]


def train_head(model: keras.Model, feed: "data.Feed", run: Run) -> list[dict[str, float]]:
    """Trains what is not frozen of a compiled model, as `train` does, on features of its pictures.

    The features of the training and held-out pictures go into the run's folder, and a run that goes
    on reads them from there. Afterwards `model` has the weights and the optimizer's state of the
    trained layers.

    Args:
        model: The model, compiled by `compile_model` with `run.config`.
        feed: The pictures of the run.
        run: The run.

    Returns:
        The rows of `metrics.json`.

    Raises:
        ValueError: The model has no frozen layers before the others, or the features in the run's
            folder are damaged or belong to other weights.
        FloatingPointError: A feature is not finite.

    Example:
        ```python
        rows = train_head(model, data.Feed(dataset, config, size, preprocessing), open_run(config))
        ```
    """
    backbone, head = models.split_frozen(model)
    train_features, test_features = _features(backbone, feed, run)
    config, accumulated = run.config, run.config.optimizer.accumulation_steps
    compile_frozen(head, config)
    rows = train(
        head,
        run,
        lambda start: train_features.training(
            batch=config.batch // accumulated,
            seed=config.seed,
            start=start,
            stop=config.total_steps * accumulated,
            **feed.targets,
        ),
        test_features.held_out(batch=config.batch_eval, **feed.targets),
    )
    _put_back(head, model)
    return rows


def _features(backbone, feed, run):
    """The features of both splits, computed now unless the run's folder has them."""
    folder = run.folder / FOLDER
    source = {"weights": _digest(backbone), "data": sha256(run.folder / "dataset.json")}
    recover(run.folder)
    if not folder.exists():
        _compute(folder, source, backbone, feed)
    remedy = f"Delete {str(folder)!r}; the same command computes the features again"
    recorded = read_json(folder / "meta.json", Meta, remedy)
    for name, file in _files(folder):
        if sha256(file) != recorded["sha256"].get(name):
            raise ValueError(
                f"The features in {str(folder)!r} are damaged: the checksum of {name} differs. "
                "Delete the folder; the same command computes them again"
            )
    if changed := [name for name in source if recorded[name] != source[name]]:
        raise ValueError(
            f"The features in {str(folder)!r} belong to other {' and other '.join(changed)}: "
            "`model.weights` has changed since the run began. Restore it, or give another --workdir"
        )
    return [data.StoredFeatures(folder / split) for split in SPLITS]


def _compute(folder, source, backbone, feed):
    splits, began = dict(zip(SPLITS, (feed.train, feed.dev))), time.perf_counter()
    with replacing_folder(folder) as new:
        for name, split in splits.items():
            (new / name).mkdir()
            batches = data.eval_batches(split, **feed.eval_options)
            data.StoredFeatures.write(
                new / name, backbone.predict_on_batch, batches, count=len(split)
            )
        files = _files(new)
        size = sum(file.stat().st_size for _, file in files) / 1e6
        meta = {**source, "sha256": {name: sha256(file) for name, file in files}}
        (new / "meta.json").write_text(json.dumps(meta, indent=1))
    pictures, seconds = sum(map(len, splits.values())), time.perf_counter() - began
    print(f"{folder}: features of {pictures:,} pictures, {size:.1f} MB, in {seconds:.1f} s")


def _files(folder: pathlib.Path):
    """The names and paths of the arrays."""
    return [(str(file.relative_to(folder)), file) for file in sorted(folder.glob("*/*.npy"))]


def _digest(model):
    """A SHA-256 of all weights and their names."""
    digest = hashlib.sha256()
    for variable in model.weights:
        digest.update(variable.path.encode())
        digest.update(keras.ops.convert_to_numpy(variable.value).tobytes())
    return digest.hexdigest()


def _put_back(head, model):
    """Copies the trained weights and the optimizer's state to the whole model."""
    for layer in head.layers:
        if layer.weights:
            model.get_layer(layer.name).set_weights(layer.get_weights())
    for variable, trained in zip(model.optimizer.variables, head.optimizer.variables):
        variable.assign(trained)
