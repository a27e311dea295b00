"""Cross-validation: each part of the training images judges a run that did not see it."""

import dataclasses
import json
import pathlib

from vit_keras import evaluation
from vit_keras.config import Config
from vit_keras.experiments import training_run
from vit_keras.experiments.rate_sweep import check_one_process
from vit_keras.file_lock import claimed
from vit_keras.files import write_text
from vit_keras.runs import REMEDY, default_workdir


def cross_validate(config: Config) -> str:
    """Trains `config.folds` runs, each of which is judged by another part of the training images.

    The parts have equal shares of each class, and follow from `config.data.split_seed`. The test
    split is not used. With `config.data.dev_percent`, that share of the other parts chooses the
    weights, the temperature and the thresholds of a run. Each run has a folder inside the folder of
    the cross-validation, which therefore continues with the run that it had reached.

    Args:
        config: The run that all others are variations of; its `workdir` is the folder.

    Returns:
        A table of the figures of each run, and of their means and deviations, in Markdown, as
        `cross_validation.md` holds it; `cross_validation.json` holds the reports.

    Raises:
        ValueError: There are several processes, of which only the first one has the reports, or
            another process has the folder.
        ValueError, OSError, FloatingPointError: As `train_run`.

    Example:
        ```python
        config = Config(dataset="folder:photos", epochs=20, folds=5, workdir="runs/folds")
        print(experiments.cross_validate(config))
        ```
    """
    check_one_process("A cross-validation", "fold")
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
    """The reports of the runs."""
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
