"""Model soups: models with the mean of several models' weights (arXiv 2203.05482)."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from vit_keras import data, evaluation, weights
from vit_keras.config import DataConfig
from vit_keras.models import preprocessing_of, task_of
from vit_keras.runs import run_of
from vit_keras.support.checks import differences
from vit_keras.support.tasks import Task

TRIALS = "dev-lr-*"  # folders of a sweep's trials, which hold out the same pictures
# Layers' arguments that do not change what a trained model computes.
TRAINING_ALONE = ("seed", "trainable", "name", "dtype", "rematerialize")
TRAINING_SUFFIXES = ("_rate", "_initializer", "_regularizer", "_constraint")


class Soup(NamedTuple):
    """A mean of models.

    Attributes:
        model: The model, with the preprocessing and the names of the first one.
        rows: One for each model, in the order of the trials: "model", its path; "used", whether it
            is in the mean; and, if models were judged, its "score" and the "soup_score" of the mean
            with it.

    Example:
        ```python
        model, rows = experiments.make_soup(["runs/a", "runs/b"])
        [row["model"] for row in rows if row["used"]]
        ```
    """

    model: keras.Model
    rows: list[dict[str, Any]]


def soup_sources(paths: Sequence[str | os.PathLike]) -> list[str]:
    """Lists the models at some paths; for a sweep's folder, the runs of its trials.

    Example:
        >>> soup_sources(["runs/sweep", "runs/mine"])
        ['runs/sweep/dev-lr-0.001', 'runs/sweep/dev-lr-0.01', 'runs/mine']
    """
    sources: list[str] = []
    for path in map(pathlib.Path, paths):
        trials = sorted(path.glob(TRIALS)) if not (path / "config.yaml").exists() else []
        sources += map(str, trials or [path])
    return sources


def make_soup(
    paths: Sequence[str | os.PathLike], judge: Callable[[keras.Model], float] | None = None
) -> Soup:
    """Averages the weights of models that were fine-tuned from the same weights.

    Besides the mean and its next version, only one model at a time is in memory.

    Args:
        paths: Runs, sweeps or checkpoints.
        judge: None for the mean of all models. For the greedy soup, a function that returns a
            model's score on pictures that it was not trained on: the models are tried from the best
            score down, and each stays in the mean unless it lowers the mean's score.

    Raises:
        ValueError: There are fewer than two models, or their architecture, preprocessing or outputs
            differ. The message lists all differences.
        FileNotFoundError: There is no model at one of the paths.

    Example:
        ```python
        soup = experiments.make_soup(["runs/a", "runs/b", "runs/c"])
        weights.save_model(soup.model, "soup.keras")
        ```
    """
    sources = soup_sources(paths)
    if len(sources) < 2:
        raise ValueError(f"A soup needs at least two models. Received: {', '.join(sources)}")
    model = _checked_models(sources)
    first, count, best = model.get_weights(), 0, -np.inf
    rows: list[dict[str, Any]] = [{"model": source, "used": True} for source in sources]
    if judge is not None:
        for row in rows:
            model.set_weights(weights.open(row["model"]).get_weights())
            row["score"] = judge(model)
        rows.sort(key=lambda row: -row["score"])
    sums = [np.zeros(array.shape, "float64") for array in first]
    for row in rows:  # with a judge, Recipe 1 of the paper
        arrays = weights.open(row["model"]).get_weights()
        tried = [total + array for total, array in zip(sums, arrays)]
        if judge is not None:
            _use_mean(model, first, tried, count + 1)
            row["soup_score"] = judge(model)
            row["used"] = row["soup_score"] >= best
            best = max(best, row["soup_score"])
        if row["used"]:
            sums, count = tried, count + 1
    _use_mean(model, first, sums, count)
    return Soup(model, rows)


def _use_mean(model, first, sums, count):
    """Sets the weights to their mean; integers, such as seeds, keep the first model's values."""
    is_integer = lambda array: np.issubdtype(array.dtype, np.integer)
    pairs = zip(first, sums)
    model.set_weights([a if is_integer(a) else total / count for a, total in pairs])


def _checked_models(sources):
    """Returns the first model after comparing it with all others."""
    model = weights.open(sources[0])
    expected, faults = _described(model), []
    for source in sources[1:]:
        other = weights.open(source)
        described = _described(other)
        names = {**expected, **described}
        faults += [f"{source}: {each}" for each in differences(expected, described, names)]
        if task_of(other) != task_of(model):  # thresholds and temperatures belong to one model
            model.task = Task(task_of(model).kind)
    if faults:
        raise ValueError(
            "The models of a soup must share their architecture, preprocessing and outputs. "
            f"Received ('there' is {sources[0]}):\n  " + "\n  ".join(faults)
        )
    return model


def _described(model) -> dict[str, Any]:
    """Returns what the models of a soup must share, by name."""
    names = getattr(model, "class_names", None)
    described: dict[str, Any] = {
        "input": model.input_shape,
        "layers": ", ".join(layer.name for layer in model.layers if "dropout" not in layer.name),
        "task": task_of(model).kind,
        "class_names": None if names is None else tuple(names),
        **{f"preprocessing.{k}": v for k, v in vars(preprocessing_of(model)).items()},
        **{v.path: tuple(v.shape) for v in model.weights if "int" not in str(v.dtype)},
    }
    for layer in model.layers:
        for name, value in layer.get_config().items() if layer.weights else ():
            if name not in TRAINING_ALONE and not name.endswith(TRAINING_SUFFIXES):
                described[f"{layer.name}.{name}"] = value
    return described


# The fields that decide which pictures a run holds out.
LEFT_OUT = ("train_split", "test_percent", "split_seed", "dev_percent", "fold")


def development_judge(
    paths: Sequence[str | os.PathLike],
    dataset: str | None = None,
    split: str | None = None,
    data_dir: str | None = None,
    batch: int = 256,
    label_columns: str | None = None,
) -> Callable[[keras.Model], float]:
    """Makes the judge of a greedy soup, for `make_soup`.

    Args:
        paths: The models of the soup.
        dataset: The name of a data set; None for that of the runs.
        split: A split on which no model was trained, and on which the soup is not evaluated; None
            for the development split of the runs.
        data_dir: The folder of TensorFlow Datasets; None for that of the runs.
        batch: The number of images per step.
        label_columns: The columns of a table that hold the labels; None for those of the runs.

    Returns:
        A function that returns a model's accuracy or, if the labels are not classes, its main
        metric.

    Raises:
        ValueError: No split is given, and the models are not runs with the same development split.
        OSError: The data set cannot be read.

    Example:
        ```python
        folders = ["runs/sweep"]
        soup = experiments.make_soup(folders, experiments.development_judge(folders))
        ```
    """
    runs = [run_of(source) for source in soup_sources(paths)]
    configs = [run.config for run in runs if run]
    left_out = {(c.dataset, *(getattr(c.data, name) for name in LEFT_OUT)) for c in configs}
    alike = len(configs) == len(runs) and len(left_out) == 1 and not dataset
    has_pictures = split and (configs or dataset)
    if not has_pictures and not (alike and configs[0].data.dev_percent):
        raise ValueError(
            "A greedy soup needs pictures on which no model was trained and no soup is evaluated. "
            "The trials of a sweep, or runs with the same `data.dev_percent`, hold some out. "
            "Received: other models. Give --dataset, and a --split such as validation"
        )
    config = configs[0].data if configs else DataConfig()
    changes: dict[str, Any] = {"data_dir": data_dir, "label_columns": label_columns}
    config = dataclasses.replace(config, **{name: x for name, x in changes.items() if x})

    def judge(model):
        name = dataset or configs[0].dataset
        loaded = data.load(name, model.input_shape[-1], config, task_of(model).kind)
        images = loaded.split(split) if split else data.train_dev_test(loaded, config)[1]
        predictor = evaluation.make_predictor(model)
        report = evaluation.evaluate(predictor, images, loaded.class_names, batch=batch)
        return evaluation.main_figure(report)

    return judge
