"""Experiments of several runs: the paper's choice of a learning rate, and cross-validation.

A sweep chooses the rate on a development split, then trains on all images; see Table 4 and Appendix
B.1.1. In a cross-validation, each run is judged on the part of the training images that it did not
see.
"""

import dataclasses
import functools
import json
import statistics
from typing import Any

from vit_keras import evaluation
from vit_keras.config import Config
from vit_keras.evaluation.reports import main_metric
from vit_keras.experiments import training_run
from vit_keras.runs import REMEDY, folder_of
from vit_keras.support.files import claimed, write_text
from vit_keras.support.tasks import figure_name, figure_text


def sweep(config: Config) -> str:
    """Tries each learning rate of `config.grid`, then trains with the best one.

    A trial holds out `grid.dev_percent` of the training images and is judged on them; among equally
    good rates, the smallest is chosen. The final runs, one for each seed of the grid, train on all
    training images and are judged on the test images. With `grid.classifiers`, each classifier gets
    its own rate. Each run has a folder inside the sweep's folder, so an interrupted sweep
    continues with the run that it had reached.

    Args:
        config: The run that all others are variations of; its `workdir` is the sweep's folder.

    Returns:
        The Markdown table of `sweep.md`; `sweep.json` holds the numbers.

    Raises:
        ValueError: Another process is using the folder.
        ValueError, OSError, FloatingPointError: As in `train_run`.

    Example:
        ```python
        config = read_config("finetune/pets")
        grid = dataclasses.replace(config.grid, learning_rates=(0.001, 0.003), seeds=(0,))
        print(experiments.sweep(dataclasses.replace(config, grid=grid, workdir="runs/pets")))
        ```
    """
    return _in_folder(config, "a sweep", "sweep", _tables)


def _in_folder(config, what, name, train):
    """Writes to a run's folder the table and the numbers that `train(config, folder)` returns."""
    folder = folder_of(config)
    with claimed(folder, what, REMEDY):
        table, numbers = train(config, folder)
        write_text(folder / f"{name}.md", table)
        write_text(folder / f"{name}.json", json.dumps(numbers))
    return table


def _train(config, folder, **changes):
    """Returns the report of a run with some fields changed."""
    alone: dict[str, Any] = {"sweep": False, "folds": 0, "workdir": str(folder)}
    report = training_run.train_run(dataclasses.replace(config, **alone, **changes))
    assert report is not None  # this is the only process
    return report


def _tables(config, folder):
    """Returns the table and the numbers of a sweep for each classifier of the grid."""
    if not config.grid.classifiers:
        return _choose(config, folder)
    tables, numbers = [], {}
    for classifier in config.grid.classifiers:
        model = dataclasses.replace(config.model, classifier=classifier)
        varied = dataclasses.replace(config, model=model)
        table, numbers[classifier] = _choose(varied, folder / classifier)
        tables.append(f"## {classifier}\n\n{table}")
    return "\n".join(tables), numbers


def _choose(config, folder):
    """Chooses a learning rate; returns the Markdown table and the numbers."""
    grid, metric = config.grid, ""

    def figure(name, rate, seed, dev_percent=0.0):
        optimizer = dataclasses.replace(config.optimizer, learning_rate=rate)
        data = dataclasses.replace(config.data, dev_percent=dev_percent)
        report = _train(config, folder / name, seed=seed, optimizer=optimizer, data=data)
        nonlocal metric
        metric = main_metric(report)
        return evaluation.main_figure(report)

    trials = {
        rate: figure(f"dev-lr-{rate:g}", rate, config.seed, grid.dev_percent)
        for rate in sorted(grid.learning_rates)
    }
    best = max(trials, key=lambda rate: trials[rate])
    final = {seed: figure(f"test-seed-{seed}", best, seed) for seed in grid.seeds}
    text, known = functools.partial(figure_text, metric), [*final.values()]
    lines = [f"| learning rate | {figure_name(metric)} on the development split |", "|--:|--:|"]
    for rate, value in trials.items():
        lines.append(f"| {rate:g}{' (chosen)' if rate == best else ''} | {text(value)} |")
    chose = "" if config.patience is None else ", which chose the weights"
    head = f"{figure_name(metric)} on the test split{chose}, learning rate {best:g}"
    lines += ["", f"| seed | {head} |", "|--:|--:|"]
    lines += [f"| {seed} | {text(value)} |" for seed, value in final.items()]
    spread = [statistics.stdev(known)] if len(known) > 1 else []
    mean = text(statistics.mean(known), *spread)
    lines += [f"| mean{' ± std' if spread else ''} | {mean} |"]
    return "\n".join(lines) + "\n", {"dev": trials, "best": best, "test": final}


def cross_validate(config: Config) -> str:
    """Trains `config.folds` runs, each judged on a different part of the training images.

    The parts have equal shares of each class, and depend on `config.data.split_seed`. The test
    split is not used. With `config.data.dev_percent`, the weights, the temperature and the
    thresholds of a run are chosen on that share of its training images. Each run has a folder
    inside the folder of the cross-validation, so an interrupted one continues with the run that it
    had reached.

    Args:
        config: The run that all others are variations of; its `workdir` is the folder.

    Returns:
        The Markdown table of `cross_validation.md`, with the metrics of each run and their means
        and deviations; `cross_validation.json` holds the reports.

    Raises:
        ValueError: Another process is using the folder.
        ValueError, OSError, FloatingPointError: As in `train_run`.

    Example:
        ```python
        config = Config(dataset="folder:photos", epochs=20, folds=5, workdir="runs/folds")
        print(experiments.cross_validate(config))
        ```
    """
    return _in_folder(config, "a cross-validation", "cross_validation", _train_folds)


def _train_folds(config, folder):
    """Returns the table and the reports of the runs."""
    folds = [dataclasses.replace(config.data, fold=(i, config.folds)) for i in range(config.folds)]
    reports = [_train(config, folder / f"fold-{i}", data=data) for i, data in enumerate(folds)]
    chooses = config.patience is not None and not config.data.dev_percent
    chosen = ", which chose the weights" if chooses else ""
    lines = [f"| fold | figures on the images of the fold{chosen} |", "|--:|---|"]
    figures = map(evaluation.summary_line, reports)
    lines += [f"| {number} | {line} |" for number, line in enumerate(figures)]
    summary = evaluation.summary_line(evaluation.summarize(reports))
    return "\n".join([*lines, f"| mean ± std | {summary} |"]) + "\n", reports
