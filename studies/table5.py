"""Table 5: fine-tuned accuracy for each model and each size of the pre-training data."""

import functools

from studies import plots
from studies.results import Column, Result, published, rows_of

PLANS = {  # models, and their pre-training data from small to large
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
SETUP = {
    "digits": "80, 250 and 836 images of 7 of the digits stand for ImageNet, ImageNet-21k and "
    "JFT-300M, with {steps} updates each. ViTs of 0.02 to 0.2 million parameters stand for B to H. "
    "The tasks are ten digits from 100 images and the three unseen digits from 30, with one seed.",
    "full": "ReaL is not part of this study: evaluate.py --real measures it on the ImageNet runs.",
}


def run(lab) -> Result:
    """Our rows, then the paper's; the columns are the pre-training data."""
    (models, upstreams), tasks = PLANS[lab.scale.name], TASKS[lab.scale.name]
    lab.require(upstreams, tasks)
    ours = transfers(lab, models, upstreams, tasks)
    names = published("table5")["upstreams"]
    stand_ins = [f"{u} ({n})" if u != n else n for u, n in zip(upstreams, names)]
    rows = [["ours", task, model, *row.values()] for (task, model), row in ours.items()]
    rows += [["paper", *row] for row in paper_rows()]
    columns = [*map(Column, ("source", "task", "model")), *(Column(s, ".2f") for s in stand_ins)]
    panels = {f"ours: {task}": {model: ours[task, model] for model in models} for task in tasks[:2]}
    panels["paper: ImageNet"] = {
        f"ViT-{model}": dict(zip(names, numbers))
        for task, model, *numbers in paper_rows()
        if task == "ImageNet"
    }
    draw = functools.partial(plots.lines, panels, ("pre-training data", "top-1 accuracy (%)"))
    return Result("table5", columns, rows, draw, _finding(ours, upstreams), lab.setup(SETUP))


def transfers(lab, models, upstreams, tasks) -> dict:
    """Fine-tunes every model on every task.

    Returns:
        `{(task, model): {upstream: accuracy (%)}}`, with None for runs that the paper leaves out.
    """
    accuracies = {}
    for task in tasks:
        for model in models:
            measured = {
                upstream: lab.finetune(lab.pretrain(model, upstream), task).mean
                for upstream in upstreams
                if (model, upstream) != ("ViT-H/14", "ImageNet")
            }
            accuracies[task, model] = {u: measured.get(u) for u in upstreams}
    return accuracies


def paper_rows() -> list[list]:
    """The paper's rows: a task, a model and its three accuracies."""
    return [
        [row["task"], model, *numbers]
        for row in rows_of("table5")
        for model, numbers in row.items()
        if model != "task"
    ]


def _finding(ours, upstreams):
    sentences = []
    for task in dict.fromkeys(task for task, _ in ours):
        best = {
            upstream: max(
                (model for t, model in ours if t == task and ours[t, model][upstream]),
                key=lambda model: ours[task, model][upstream],
            )
            for upstream in upstreams
        }
        models = ", ".join(
            f"{model} after {upstream} ({ours[task, model][upstream]:.2f} %)"
            for upstream, model in best.items()
        )
        sentences.append(f"The best models at {task} are {models}.")
    return " ".join(sentences)
