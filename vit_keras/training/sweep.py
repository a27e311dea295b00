"""The paper's choice of a learning rate: on a development split, then on the whole (Table 4)."""

import dataclasses
import json
import pathlib
import statistics
from collections.abc import Callable

from vit_keras.files import write_text
from vit_keras.runs import default_workdir


def sweep(config, train_run: Callable[..., dict]) -> str:
    """Tries each learning rate of `config.grid`, trains with the best, and returns the table.

    `train_run(config)` trains a run, or goes on with it, and gives its report: a dict with
    "accuracy". A trial trains without `dev_percent` of the training images, which judge it; of
    rates that do equally well the smaller is taken. The last runs, one a seed, train on all and are
    judged by the test images. Each of `grid.classifiers` is such a choice of its own. Each run has
    a folder of its own in the sweep's, so that a sweep that was stopped goes on with the run that
    it was at.
    """
    folder = pathlib.Path(config.workdir or default_workdir(config))
    if not config.grid.classifiers:
        table, found = _choice(config, train_run, folder)
    else:
        tables, found = [], {}
        for classifier in config.grid.classifiers:
            model = dataclasses.replace(config.model, classifier=classifier)
            run = dataclasses.replace(config, model=model)
            table, found[classifier] = _choice(run, train_run, folder / classifier)
            tables.append(f"## {classifier}\n\n{table}")
        table = "\n".join(tables)
    write_text(folder / "sweep.md", table)
    write_text(folder / "sweep.json", json.dumps(found))
    return table


def _choice(config, train_run, folder):
    """The table of one choice, and its numbers."""
    grid = config.grid
    found = {
        rate: _run(config, train_run, folder / f"dev-lr-{rate:g}", rate, config.seed, dev=True)
        for rate in sorted(grid.learning_rates)
    }
    best = max(found, key=found.get)
    last = {
        seed: _run(config, train_run, folder / f"test-seed-{seed}", best, seed)
        for seed in grid.seeds
    }
    return _table(found, best, last), {"dev": found, "best": best, "test": last}


def _run(config, train_run, folder, rate, seed, dev=False):
    run = dataclasses.replace(
        config,
        sweep=False,
        workdir=str(folder),
        seed=seed,
        optimizer=dataclasses.replace(config.optimizer, learning_rate=rate),
        data=dataclasses.replace(config.data, dev_percent=config.grid.dev_percent if dev else 0.0),
    )
    return train_run(run)["accuracy"]


def _table(found, best, last):
    """Markdown: the trials, then the last runs with mean and standard deviation."""
    lines = ["| learning rate | accuracy on the development split |", "|--:|--:|"]
    lines += [
        f"| {rate:g}{' (chosen)' if rate == best else ''} | {100 * accuracy:.2f} % |"
        for rate, accuracy in found.items()
    ]
    lines += ["", f"| seed | accuracy on the test split, learning rate {best:g} |", "|--:|--:|"]
    lines += [f"| {seed} | {100 * accuracy:.2f} % |" for seed, accuracy in last.items()]
    percents = [100 * accuracy for accuracy in last.values()]
    spread = f" ± {statistics.stdev(percents):.2f}" if len(percents) > 1 else ""
    lines += [f"| mean{' ± std' if spread else ''} | {statistics.mean(percents):.2f}{spread} % |"]
    return "\n".join(lines) + "\n"
