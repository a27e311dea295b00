"""Table 7: ResNets pre-trained with Adam, as in this paper, and with SGD, as in BiT's."""

import functools
import statistics

from vit_keras.reproduce import plots
from vit_keras.reproduce.results import Column, Result, rows_of

PLANS = {  # the paper's models and ours, their data, and what SGD changes of the recipe
    "digits": (
        {"R50x1": "BiT-R8", "R152x2": "BiT-R26"},
        "836",
        {"optimizer.learning_rate": 0.05, "optimizer.weight_decay": 1e-3},
    ),
    "full": (
        {"R50x1": "R50x1", "R152x2": "R152x2"},
        "JFT-300M",
        # BiT's 0.03 an update of 256 images (arXiv 1912.11370); its weight decay is of the loss.
        {"optimizer.learning_rate": 0.48, "optimizer.weight_decay": 1e-4},
    ),
}
TASKS = {
    "digits": ("ten digits", "unseen digits"),
    "full": ("ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers"),
}
SMALLER = {
    "digits": "two-stage ResNets of half the width, with 1 and 3 to 4 units a stage, pre-trained "
    "on 836 images of 7 of the digits for 400 updates; one learning rate for each rule.",
    "full": "",
}
RULES = {"Adam": "adamw", "SGD": "sgd"}


def run(lab) -> Result:
    """Rows of ours, then the paper's; the last of each is the average."""
    (models, upstream, with_sgd), tasks = PLANS[lab.scale], TASKS[lab.scale]
    lab.require([upstream], tasks)
    ours = {}
    for paper, model in models.items():
        for rule, name in RULES.items():
            changes = {"optimizer.name": name, **with_sgd} if rule == "SGD" else {}
            if changes:
                changes["name"] = f"{model}-on-{upstream}-sgd"
            trained = lab.pretrain(model, upstream, **changes)
            found = {task: lab.finetune(trained, task).mean for task in tasks}
            ours[f"{paper} {rule}"] = {**found, "average": statistics.mean(found.values())}
    rows = [
        ["ours", task, *(found[task] for found in ours.values())] for task in (*tasks, "average")
    ]
    rows += [["paper", *row.values()] for row in rows_of("table7")]
    columns = [Column("whose"), Column("task")]
    for name in ours:
        stand_in = models[name.split()[0]]
        same = stand_in == name.split()[0]
        columns.append(Column(name if same else f"{stand_in} {name.split()[1]} ({name})", ".2f"))
    panels = {
        "ours": {name: _short(found) for name, found in ours.items()},
        "paper": {
            name: _short({row["task"]: row[name] for row in rows_of("table7")}) for name in ours
        },
    }
    draw = functools.partial(plots.bars, panels, "top-1 accuracy (%)")
    better = {
        model: ours[f"{model} Adam"]["average"] - ours[f"{model} SGD"]["average"]
        for model in models
    }
    finding = "; ".join(
        f"with Adam {models[model]} is {difference:+.2f} points from SGD on average"
        for model, difference in better.items()
    )
    return Result("table7", columns, rows, draw, f"{finding}.", SMALLER[lab.scale])


def _short(found):
    """Without the average, for the picture."""
    return {task: value for task, value in found.items() if task != "average"}
