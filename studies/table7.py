"""Table 7: ResNets pre-trained with Adam, as in this paper, and with SGD, as in BiT."""

import functools
import statistics

from studies import plots
from studies.results import Column, Result, rows_of

PLANS = {  # {the paper's model: ours}, the data, and the changes to the recipe for SGD
    "digits": (
        {"R50x1": "BiT-R8", "R152x2": "BiT-R26"},
        "836",
        {"optimizer.learning_rate": 0.05, "optimizer.weight_decay": 1e-3},
    ),
    "full": (
        {"R50x1": "R50x1", "R152x2": "R152x2"},
        "JFT-300M",
        # BiT has 0.03 for 256 images (arXiv 1912.11370); its weight decay is part of the loss.
        {"optimizer.learning_rate": 0.48, "optimizer.weight_decay": 1e-4},
    ),
}
TASKS = {
    "digits": ("ten digits", "unseen digits"),
    "full": ("ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers"),
}
SETUP = {
    "digits": "The ResNets have two stages of half the width, with 1 or with 3 and 4 units a "
    "stage. They are pre-trained on 836 images of 7 of the digits for {steps} updates, with one "
    "learning rate for each optimizer.",
    "full": "",
}
OPTIMIZERS = {"Adam": "adamw", "SGD": "sgd"}


def run(lab) -> Result:
    """Our rows, then the paper's; the last row of each is the average."""
    (models, upstream, with_sgd), tasks = PLANS[lab.scale.name], TASKS[lab.scale.name]
    lab.require([upstream], tasks)
    ours = {}
    for paper, model in models.items():
        for optimizer, name in OPTIMIZERS.items():
            changes = {"optimizer.name": name, **with_sgd} if optimizer == "SGD" else {}
            if changes:
                changes["name"] = f"{model}-on-{upstream}-sgd"
            trained = lab.pretrain(model, upstream, **changes)
            accuracies = {task: lab.finetune(trained, task).mean for task in tasks}
            average = statistics.mean(accuracies.values())
            ours[f"{paper} {optimizer}"] = {**accuracies, "average": average}
    rows = [
        ["ours", task, *(column[task] for column in ours.values())] for task in (*tasks, "average")
    ]
    rows += [["paper", *row.values()] for row in rows_of("table7")]
    columns = [Column("source"), Column("task")]
    for name in ours:
        stand_in = models[name.split()[0]]
        same = stand_in == name.split()[0]
        columns.append(Column(name if same else f"{stand_in} {name.split()[1]} ({name})", ".2f"))
    panels = {
        "ours": {name: _without_average(column) for name, column in ours.items()},
        "paper": {
            name: _without_average({row["task"]: row[name] for row in rows_of("table7")})
            for name in ours
        },
    }
    draw = functools.partial(plots.bars, panels, "top-1 accuracy (%)")
    gains = {
        model: ours[f"{model} Adam"]["average"] - ours[f"{model} SGD"]["average"]
        for model in models
    }
    finding = " ".join(
        f"With Adam instead of SGD, {models[model]} changes by {gain:+.2f} points on average."
        for model, gain in gains.items()
    )
    return Result("table7", columns, rows, draw, finding, lab.setup(SETUP))


def _without_average(column):
    return {task: value for task, value in column.items() if task != "average"}
