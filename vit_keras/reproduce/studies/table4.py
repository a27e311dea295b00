"""Table 4: the recipes of fine-tuning, as configs/finetune has them."""

import functools

from vit_keras.config import read_config
from vit_keras.reproduce import plots
from vit_keras.reproduce.results import Column, Result, published, rows_of

COLUMNS = (
    *(Column("data set"), Column("ours: steps", ",d"), Column("paper: steps", ",d")),
    *(Column("ours: learning rates"), Column("paper: learning rates"), Column("ours: recipe")),
)


def run(lab) -> Result:
    """Each row beside the configuration that states it."""
    rows, points, faults = [], {"steps": [], "learning rate": []}, []
    for paper in rows_of("table4"):
        config = read_config(f"finetune/{paper['config']}")
        rates = _rates(config, paper)
        equal = config.total_steps == paper["steps"] and rates == paper["learning_rates"]
        faults += [] if equal and not _shared_faults(config) else [paper["config"]]
        texts = [", ".join(f"{rate:g}" for rate in of) for of in (rates, paper["learning_rates"])]
        steps = [config.total_steps, paper["steps"]]
        rows.append([paper["dataset"], *steps, *texts, f"finetune/{paper['config']}.yaml"])
        points["steps"].append((paper["steps"], config.total_steps))
        points["learning rate"] += zip(paper["learning_rates"], rates)
    finding = (
        f"{len(rows)} of {len(rows)} recipes state what the paper prints; batch, momentum, "
        "clipping and resolution are the paper's in all."
        if not faults
        else f"other than printed: {', '.join(faults)}."
    )
    return Result("table4", COLUMNS, rows, functools.partial(plots.parity, points, ""), finding)


def _rates(config, paper):
    """The grid that a sweep tries, or the one rate where the paper has one."""
    one = len(paper["learning_rates"]) == 1
    return [config.optimizer.learning_rate] if one else list(config.grid.learning_rates)


def _shared_faults(config):
    found = {"batch": config.batch, "image_size": config.model.image_size}
    fields = ("momentum", "weight_decay", "grad_norm_clip")
    found |= {key: getattr(config.optimizer, key) for key in fields}
    return [key for key, value in published("table4")["shared"].items() if found[key] != value]
