"""Table 4: the recipes of fine-tuning in configs/finetune, compared with the paper's."""

import functools

from studies import plots
from studies.results import Column, Result, published, rows_of
from vit_keras.config import read_config

COLUMNS = (
    *(Column("data set"), Column("ours: steps", ",d"), Column("paper: steps", ",d")),
    *(Column("ours: learning rates"), Column("paper: learning rates"), Column("ours: recipe")),
)


def run(lab) -> Result:
    """One row for each recipe, beside the values that the paper prints."""
    rows, faults = [], []
    points: dict[str, list] = {"steps": [], "learning rate": []}
    for paper in rows_of("table4"):
        config = read_config(f"finetune/{paper['config']}")
        rates = _rates(config, paper)
        equal = config.total_steps == paper["steps"] and rates == paper["learning_rates"]
        faults += [] if equal and not _shared_faults(config) else [paper["config"]]
        grids = rates, paper["learning_rates"]
        texts = [", ".join(f"{rate:g}" for rate in grid) for grid in grids]
        steps = [config.total_steps, paper["steps"]]
        rows.append([paper["dataset"], *steps, *texts, f"finetune/{paper['config']}"])
        points["steps"].append((paper["steps"], config.total_steps))
        points["learning rate"] += zip(paper["learning_rates"], rates)
    finding = (
        f"{len(rows)} of {len(rows)} recipes state what the paper prints, with its batch size, "
        "momentum, clipping and resolution."
        if not faults
        else f"These recipes differ from the paper: {', '.join(faults)}."
    )
    return Result("table4", COLUMNS, rows, functools.partial(plots.parity, points, ""), finding)


def _rates(config, paper):
    """The learning rates of the recipe's sweep, or its one rate where the paper has one."""
    one = len(paper["learning_rates"]) == 1
    return [config.optimizer.learning_rate] if one else list(config.grid.learning_rates)


def _shared_faults(config):
    """The names of values that the paper shares between all rows and `config` differs in."""
    values = {"batch": config.batch, "image_size": config.model.image_size}
    fields = ("momentum", "weight_decay", "grad_norm_clip")
    values |= {key: getattr(config.optimizer, key) for key in fields}
    return [key for key, value in published("table4")["shared"].items() if values[key] != value]
