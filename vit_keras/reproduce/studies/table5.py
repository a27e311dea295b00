"""Table 5: fine-tuned accuracy over models and over the size of the pre-training data."""

import functools

from vit_keras.reproduce import plots
from vit_keras.reproduce.results import Column, Result, published, rows_of

PLANS = {  # models and, from small to large, the data that they are pre-trained on
    "digits": (("ViT-b/4", "ViT-B/4", "ViT-L/4"), ("80", "250", "836")),
    "full": (
        ("ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32", "ViT-H/14"),
        ("ImageNet", "ImageNet-21k", "JFT-300M"),
    ),
}
TASKS = {
    "digits": ("ten digits", "unseen digits"),
    "full": ("CIFAR-10", "CIFAR-100", "ImageNet", "Flowers", "Pets"),
}
SMALLER = {
    "digits": "80, 250 and 836 images of 7 of the digits stand for ImageNet, ImageNet-21k and "
    "JFT-300M, at 400 updates each; ViTs of 0.02 to 0.2 million parameters stand for B to H; the "
    "tasks are all ten digits from 100 images and the three unseen ones from 30, one seed.",
    "full": "ReaL is evaluate.py --real on the ImageNet runs.",
}


def run(lab) -> Result:
    """Rows of ours, then the paper's; the columns are the pre-training data."""
    (models, upstreams), tasks = PLANS[lab.scale], TASKS[lab.scale]
    lab.require(upstreams, tasks)
    ours = transfers(lab, models, upstreams, tasks)
    names = published("table5")["upstreams"]
    stand_ins = [f"{u} ({n})" if u != n else n for u, n in zip(upstreams, names)]
    rows = [["ours", task, model, *found.values()] for (task, model), found in ours.items()]
    rows += [["paper", *row] for row in paper_rows()]
    columns = [*map(Column, ("whose", "task", "model")), *(Column(s, ".2f") for s in stand_ins)]
    panels = {f"ours: {task}": {model: ours[task, model] for model in models} for task in tasks[:2]}
    panels["paper: ImageNet"] = {
        f"ViT-{model}": dict(zip(names, numbers))
        for task, model, *numbers in paper_rows()
        if task == "ImageNet"
    }
    draw = functools.partial(plots.lines, panels, ("pre-training data", "top-1 accuracy (%)"))
    return Result("table5", columns, rows, draw, _finding(ours, upstreams), SMALLER[lab.scale])


def transfers(lab, models, upstreams, tasks) -> dict:
    """{(task, model): {upstream: accuracy (%)}}; a None where the paper has no such run."""
    found = {}
    for task in tasks:
        for model in models:
            found[task, model] = {
                upstream: lab.finetune(lab.pretrain(model, upstream), task).mean
                for upstream in upstreams
                if (model, upstream) != ("ViT-H/14", "ImageNet")
            }
            found[task, model] = {u: found[task, model].get(u) for u in upstreams}
    return found


def paper_rows() -> list[list]:
    """Task, model and its three accuracies."""
    return [
        [row["task"], model, *numbers]
        for row in rows_of("table5")
        for model, numbers in row.items()
        if model != "task"
    ]


def _finding(ours, upstreams):
    parts = []
    for task in dict.fromkeys(task for task, _ in ours):
        best = {
            upstream: max(
                (model for t, model in ours if t == task and ours[t, model][upstream]),
                key=lambda model: ours[task, model][upstream],
            )
            for upstream in upstreams
        }
        listed = ", ".join(
            f"{model} with {upstream} ({ours[task, model][upstream]:.2f} %)"
            for upstream, model in best.items()
        )
        parts.append(f"best at {task}: {listed}")
    return "; ".join(parts) + "."
