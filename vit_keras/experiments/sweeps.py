"""Experiments of several runs: the paper's choice of a learning rate, cross-validation, VTAB-1k.

A sweep chooses the rate on a development split, then trains on all images; see Table 4 and Appendix
B.1.1. In a cross-validation, each run is judged on the part of the training images that it did not
see. VTAB-1k (arXiv 1910.04867) fine-tunes a checkpoint on 19 tasks; the score is the mean.
"""

import dataclasses
import functools
import json
import os
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from vit_keras import evaluation
from vit_keras.config import Config, merge_configs
from vit_keras.data.tfds import GROUPS, TASKS
from vit_keras.evaluation.reports import main_metric
from vit_keras.experiments import training_run
from vit_keras.runs import REMEDY, folder_of, read_rows
from vit_keras.support.checks import check_choice
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


SGD: dict[str, Any] = {"name": "sgd", "momentum": 0.9, "weight_decay": 0.0}
COSINE = {"learning_rate": 0.01, "decay_type": "cosine", "warmup_steps": 200}
STAIRS = {"learning_rate": 0.003, "decay_type": "staircase", "warmup_steps": 100}
SETTINGS = {  # the number of updates, and the optimizer
    # Table 4 and Appendix B.1.1, with the authors' later warmup
    "paper": (2500, SGD | COSINE | {"momentum_dtype": "bfloat16", "grad_norm_clip": 1.0}),
    # BiT-HyperRule for fewer than 20 000 images (arXiv 1912.11370), without MixUp
    "bit": (500, SGD | STAIRS | {"grad_norm_clip": None}),
}


def fine_tune_tasks(
    weights: str | os.PathLike,
    out: str | os.PathLike,
    *,
    tasks: Sequence[str] | None = None,
    setting: str = "paper",
    data: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Fine-tunes a checkpoint on tasks of VTAB-1k, and writes the tables after each task.

    A task with a complete run is not trained again, and a failed task does not stop the others, so
    the same call continues after an interruption.

    Args:
        weights: A checkpoint of any format that `vit_keras.weights` reads.
        out: The folder of the runs, `vtab.csv` and `vtab.md`.
        tasks: Names of tasks; None for all 19.
        setting: "paper" (Table 4), or "bit" for the BiT-HyperRule.
        data: Fields of `DataConfig`, such as `data_dir`.
        changes: Fields of `Config` that replace the setting's.

    Returns:
        `{task: accuracy on its test images}`, accuracies in [0, 1].

    Raises:
        ValueError: A task or setting is unknown, `out` holds another setting's tasks, another
            process uses `out`, or a task has no result; the results of the others are still
            written.

    Example:
        ```python
        folder = {"data_dir": "/data/tensorflow_datasets"}
        accuracies = experiments.fine_tune_tasks(
            "ViT-B_16.npz", "runs/vtab", tasks=["dtd", "svhn"], data=folder
        )
        ```
    """
    out, accuracies, failed = pathlib.Path(out), {}, []
    asked: dict[str, Any] = {"setting": setting, "weights": os.fspath(weights)}
    asked |= {"data": data or {}, "changes": changes or {}}
    configs = [task_config(name, out / name, **asked) for name in tasks or TASKS]
    with claimed(out, "VTAB-1k", "Wait until it ends, or give another --out"):
        settings = json.dumps(asked, indent=1)
        if (file := out / "settings.json").exists() and file.read_text() != settings:
            raise ValueError(f"{file} belongs to another setting or checkpoint. Give another --out")
        write_text(file, settings)
        for name, config in zip(tasks or TASKS, configs):
            try:
                accuracies[name] = _accuracy(config)
            except (ImportError, OSError, FloatingPointError, ValueError) as error:
                print(f"{name}: no result: {error}", flush=True)
                failed.append(name)
                continue
            as_csv, as_markdown = tables(accuracies)
            write_text(out / "vtab.csv", as_csv)
            write_text(out / "vtab.md", as_markdown)
            print(f"{name}: {100 * accuracies[name]:.2f}%", flush=True)
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(configs)} tasks have no result: {', '.join(failed)}. "
            "Run the same command again to continue with them"
        )
    return accuracies


def task_config(
    name: str,
    workdir: str | os.PathLike,
    setting: str,
    weights: str,
    data: Mapping,
    changes: Mapping,
) -> Config:
    """Returns the run that fine-tunes `weights` on a task.

    `data` holds fields of `DataConfig`, such as `data_dir`; `changes` replace fields of the
    setting. Raises ValueError for an unknown task or setting.
    """
    check_choice(name, TASKS, "task")
    check_choice(setting, SETTINGS, "setting")
    task, (updates, optimizer) = TASKS[name], SETTINGS[setting]
    size = 128 if setting == "bit" and task.small else 384
    fields = {
        "name": f"vtab-{name}",
        "dataset": f"vtab:{name}",
        "workdir": os.fspath(workdir),
        "batch": 512,
        "total_steps": updates,
        "eval_every": updates,
        "checkpoint_every": 500,
        "optimizer": optimizer,
        "model": {"weights": weights, "image_size": size},
        "data": {"train_split": "train", "test_split": "test", **data},
        "augment": {"crop": "bit" if task.crop else "resize", "flip": task.flip},
    }
    return merge_configs(fields, changes)


def _accuracy(config):
    """Returns a task's test accuracy; trains its run unless it is complete."""
    folder = pathlib.Path(config.workdir)
    rows = read_rows(folder) if (folder / "model.keras").is_file() else []
    if not rows or rows[-1]["step"] != config.total_steps:
        print(f"{folder.name}: training", flush=True)
        training_run.train_run(config)
        rows = read_rows(folder)
    return rows[-1]["val_accuracy"]


def means(accuracies: Mapping[str, float]) -> list[tuple[str, int, float]]:
    """Returns the name, task count and mean accuracy of each group of tasks, then of all tasks."""
    of = lambda group: [x for name, x in accuracies.items() if TASKS[name].group == group]
    groups = {group: of(group) for group in GROUPS} | {"all": [*accuracies.values()]}
    return [(group, len(x), sum(x) / len(x)) for group, x in groups.items() if x]


def tables(accuracies: Mapping[str, float]) -> tuple[str, str]:
    """Formats the results as CSV, and as a Markdown table in percent."""
    rows = [(name, TASKS[name].group, accuracies[name]) for name in TASKS if name in accuracies]
    rows += [(f"mean of {count}", group, mean) for group, count, mean in means(accuracies)]
    as_csv = [f"{name},{group},{value}" for name, group, value in rows]
    lines = ["| task | group | accuracy (%) |", "|---|---|--:|"]
    lines += [f"| {name} | {group} | {100 * value:.2f} |" for name, group, value in rows]
    return "\n".join(["task,group,accuracy", *as_csv, ""]), "\n".join([*lines, ""])
