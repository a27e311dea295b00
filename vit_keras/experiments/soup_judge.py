"""The pictures that choose the models of a greedy soup."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence

import keras

from vit_keras import data, evaluation
from vit_keras.config import DataConfig
from vit_keras.experiments.soup import soup_sources
from vit_keras.models import task_of
from vit_keras.runs import Run, find_run

# What decides which pictures a run leaves out.
LEFT_OUT = ("train_split", "test_percent", "split_seed", "dev_percent", "fold")


def development_judge(
    paths: Sequence[str | os.PathLike],
    dataset: str | None = None,
    split: str | None = None,
    data_dir: str | None = None,
    batch: int = 256,
) -> Callable[[keras.Model], float]:
    """Makes the judge of a greedy soup, for `make_soup`.

    Args:
        paths: The models of the soup.
        dataset: The name of a data set; None for the runs' own.
        split: A split of it that no model trained on, and that does not judge the soup; None for
            the development split of the runs.
        data_dir: The folder of TensorFlow Datasets; None for the runs' own.
        batch: The number of images per step.

    Returns:
        A function that gives a model's accuracy, or the metric of another kind of label.

    Raises:
        ValueError: No split is given, and the models are not runs that leave out the same
            development split.
        OSError: The data set cannot be read.

    Example:
        ```python
        folders = ["runs/sweep"]
        soup = experiments.make_soup(folders, experiments.development_judge(folders))
        ```
    """
    runs = [_run_of(source) for source in soup_sources(paths)]
    if split is None:
        _check_development(runs, dataset)
    first = next((run for run in runs if run), None)
    name = dataset or (first.config.dataset if first else None)
    if name is None:
        raise ValueError(
            "A greedy soup needs pictures. Received: models that are no runs, without a data set. "
            "Give --dataset and --split"
        )
    config = first.config.data if first else DataConfig()
    config = dataclasses.replace(config, data_dir=data_dir or config.data_dir)

    def judge(model):
        task = task_of(model)
        loaded = data.load(name, model.input_shape[-1], config, task.kind)
        images = loaded.split(split) if split else data.train_dev_test(loaded, config)[1]
        predictor = evaluation.make_predictor(model)
        with loaded.unreadable.reading():
            outputs, labels, _ = predictor.outputs(predictor.batches(images, batch))
        told = task, predictor.gives_probabilities
        return evaluation.main_figure(evaluation.report(outputs, labels, loaded.class_names, *told))

    return judge


def _run_of(source) -> Run | None:
    return find_run(source) if (pathlib.Path(source) / "config.yaml").is_file() else None


def _check_development(runs, dataset):
    """Refuses runs without one development split that all of them leave out."""
    left_out = {
        (run.config.dataset, *(getattr(run.config.data, name) for name in LEFT_OUT))
        for run in runs
        if run
    }
    if None in runs or dataset or len(left_out) != 1 or not runs[0].config.data.dev_percent:
        raise ValueError(
            "A greedy soup chooses by pictures that no model trained on, and that do not judge the "
            "soup: the trials of a sweep, or runs with the same `data.dev_percent`, have them. "
            "Received: other models. Give --split, such as validation"
        )
