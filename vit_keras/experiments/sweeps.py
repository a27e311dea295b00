"""Experiments of several runs: the paper's choice of a learning rate, and cross-validation.

A sweep chooses the rate on a development split, then trains on all images; see Table 4 and Appendix
B.1.1. In a cross-validation, each run is judged on the part of the training images that it did not
see.
"""

import dataclasses
import json
import pathlib
import statistics

from vit_keras import evaluation
from vit_keras.config import Config
from vit_keras.experiments import training_run
from vit_keras.runs import REMEDY, default_workdir
from vit_keras.support.files import claimed, write_text


def sweep(config: Config) -> str:
    """Tries each learning rate of `config.grid`, then trains with the best one.

    A trial holds out `grid.dev_percent` of the training images and is judged on them; among equally
    good rates, the smallest is chosen. The final runs, one for each seed of the grid, train on all
    training images and are judged on the test images. With `grid.classifiers`, each classifier gets
    its own choice. Each run has a folder inside the sweep's folder, so an interrupted sweep
    continues with the run that it had reached.

    Args:
        config: The run that all others are variations of; its `workdir` is the sweep's folder.

    Returns:
        The Markdown table of `sweep.md`; `sweep.json` holds the numbers.

    Raises:
        ValueError: Another process is using the folder.
        ValueError, OSError, FloatingPointError: As `train_run`.

    Example:
        ```python
        config = read_config("finetune/pets")
        grid = dataclasses.replace(config.grid, learning_rates=(0.001, 0.003), seeds=(0,))
        print(experiments.sweep(dataclasses.replace(config, grid=grid, workdir="runs/pets")))
        ```
    """
    folder = pathlib.Path(config.workdir or default_workdir(config))
    with claimed(folder, "a sweep", REMEDY):
        table, numbers = _tables(config, folder)
        write_text(folder / "sweep.md", table)
        write_text(folder / "sweep.json", json.dumps(numbers))
    return table


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
    """Chooses a learning rate; returns its table and its numbers."""
    grid = config.grid
    trials = {
        rate: _accuracy(config, folder / f"dev-lr-{rate:g}", rate, config.seed, dev=True)
        for rate in sorted(grid.learning_rates)
    }
    best = max(trials, key=lambda rate: trials[rate])
    final = {
        seed: _accuracy(config, folder / f"test-seed-{seed}", best, seed) for seed in grid.seeds
    }
    return _table(trials, best, final), {"dev": trials, "best": best, "test": final}


def _accuracy(config, folder, rate, seed, dev=False):
    config = dataclasses.replace(
        config,
        sweep=False,
        workdir=str(folder),
        seed=seed,
        optimizer=dataclasses.replace(config.optimizer, learning_rate=rate),
        data=dataclasses.replace(config.data, dev_percent=config.grid.dev_percent if dev else 0.0),
    )
    report = training_run.train_run(config)
    assert report is not None  # this is the only process
    return evaluation.main_figure(report)


def _table(trials, best, final):
    """Formats the trials, then the final runs with their mean and deviation, as Markdown."""
    lines = ["| learning rate | accuracy on the development split |", "|--:|--:|"]
    lines += [
        f"| {rate:g}{' (chosen)' if rate == best else ''} | {100 * accuracy:.2f} % |"
        for rate, accuracy in trials.items()
    ]
    lines += ["", f"| seed | accuracy on the test split, learning rate {best:g} |", "|--:|--:|"]
    lines += [f"| {seed} | {100 * accuracy:.2f} % |" for seed, accuracy in final.items()]
    percents = [100 * accuracy for accuracy in final.values()]
    spread = f" ± {statistics.stdev(percents):.2f}" if len(percents) > 1 else ""
    lines += [f"| mean{' ± std' if spread else ''} | {statistics.mean(percents):.2f}{spread} % |"]
    return "\n".join(lines) + "\n"


def cross_validate(config: Config) -> str:
    """Trains `config.folds` runs, each judged on a different part of the training images.

    The parts have equal shares of each class, and follow from `config.data.split_seed`. The test
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
        ValueError, OSError, FloatingPointError: As `train_run`.

    Example:
        ```python
        config = Config(dataset="folder:photos", epochs=20, folds=5, workdir="runs/folds")
        print(experiments.cross_validate(config))
        ```
    """
    folder = pathlib.Path(config.workdir or default_workdir(config))
    with claimed(folder, "a cross-validation", REMEDY):
        reports = _train_folds(config, folder)
        chooses = config.patience is not None and not config.data.dev_percent
        chosen = ", which chose the weights" if chooses else ""
        lines = [f"| fold | figures on the images of the fold{chosen} |", "|--:|---|"]
        figures = map(evaluation.summary_line, reports)
        lines += [f"| {number} | {line} |" for number, line in enumerate(figures)]
        summary = evaluation.summary_line(evaluation.summarize(reports))
        table = "\n".join([*lines, f"| mean ± std | {summary} |"]) + "\n"
        write_text(folder / "cross_validation.md", table)
        write_text(folder / "cross_validation.json", json.dumps(reports))
    return table


def _train_folds(config, folder):
    """Trains the runs, and returns their reports."""
    reports = []
    for number in range(config.folds):
        fold = dataclasses.replace(
            config,
            folds=0,
            workdir=str(folder / f"fold-{number}"),
            data=dataclasses.replace(config.data, fold=(number, config.folds)),
        )
        report = training_run.train_run(fold)
        assert report is not None  # this is the only process
        reports.append(report)
    return reports
