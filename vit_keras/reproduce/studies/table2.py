"""Table 2: large pre-trained models after fine-tuning, mean and deviation over three seeds."""

import functools

from vit_keras.reproduce import plots
from vit_keras.reproduce.costs import pretraining_flops
from vit_keras.reproduce.results import Column, Mean, Result, published, rows_of

SEEDS = (0, 1, 2)
PLANS = {  # what stands for each of the paper's columns: a model and its pre-training data
    "digits": {
        "ViT-H/14 JFT": ("ViT-L/4", "836"),
        "ViT-L/16 JFT": ("ViT-B/4", "836"),
        "ViT-L/16 I21k": ("ViT-B/4", "250"),
        "BiT-L R152x4": ("BiT-R26", "836"),
    },
    "full": {
        "ViT-H/14 JFT": ("ViT-H/14", "JFT-300M"),
        "ViT-L/16 JFT": ("ViT-L/16", "JFT-300M"),
        "ViT-L/16 I21k": ("ViT-L/16", "ImageNet-21k"),
        "BiT-L R152x4": None,  # a published checkpoint, pre-trained with SGD: not of this paper
    },
}
TASKS = {
    "digits": ("ten digits", "unseen digits"),
    "full": ("ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers"),
}
SMALLER = {
    "digits": "pre-training knows 7 of the 10 digits, from 250 or 836 images for 400 updates; "
    "the tasks are all ten digits from 100 images and the three unseen ones from 30, at one "
    "learning rate and 16 pixels throughout; models have 0.07 to 0.3 million parameters.",
    "full": "BiT-L and Noisy Student are of other papers and are not trained; ImageNet at 384 "
    "pixels (configs/finetune/imagenet_*.yaml have 512 and 518); ReaL is evaluate.py --real, VTAB "
    "vtab.py.",
}


def run(lab) -> Result:
    """Rows of ours, then the paper's; the last row of each is what pre-training cost."""
    plan, tasks = PLANS[lab.scale], TASKS[lab.scale]
    lab.require([chosen[1] for chosen in plan.values() if chosen], tasks)
    trained = {name: chosen and lab.pretrain(*chosen) for name, chosen in plan.items()}
    ours = {
        task: {name: run and lab.finetune(run, task, SEEDS) for name, run in trained.items()}
        for task in tasks
    }
    names = [name for name in rows_of("table2")[0] if name != "task"]
    stand_ins = {name: _called(name, plan.get(name)) for name in names}
    rows = [["ours", task, *(found.get(name) for name in names)] for task, found in ours.items()]
    flops = {name: run and pretraining_flops(run) for name, run in trained.items()}
    costs = [f"{flops[name]:.2g}" if flops.get(name) else None for name in names]
    rows.append(["ours", "pre-training FLOPs", *costs])
    paper = [(row.pop("task"), row) for row in rows_of("table2")]
    for task, row in paper:
        rows.append(["paper", task, *(row[name] and Mean(*row[name]) for name in names)])
    days = [f"{days:,}" for days in published("table2")["core_days"]]
    rows.append(["paper", "TPUv3-core-days", *days])
    columns = [Column("whose"), Column("task"), *(Column(stand_ins[n], ".2f") for n in names)]
    panels = {
        "ours": {stand_ins[name]: _column(ours, name) for name in plan if plan[name]},
        "paper": {stand_ins[name]: _column(dict(paper), name) for name in plan},
    }
    draw = functools.partial(plots.bars, panels, "top-1 accuracy (%)")
    return Result("table2", columns, rows, draw, _finding(ours, stand_ins), SMALLER[lab.scale])


def _called(name, chosen):
    return f"{' on '.join(chosen)} ({name})" if chosen else name


def _column(rows, name):
    return {task: row[name] and Mean(*row[name]) for task, row in rows.items()}


def _finding(ours, stand_ins):
    parts = []
    for task, found in ours.items():
        known = {name: mean for name, mean in found.items() if mean}
        best = max(known, key=lambda name: known[name].mean)
        parts.append(f"{stand_ins[best]} is best at {task} with {known[best]:.2f} %")
    return "; ".join(parts) + "."
