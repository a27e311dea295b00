"""Table 2: large pre-trained models after fine-tuning, as means over three seeds."""

import functools

from studies import plots
from studies.lab import pretraining_flops
from studies.results import Column, Mean, Result, published, rows_of

SEEDS = (0, 1, 2)
# The model and the pre-training data that stand for each column of the paper.
PLANS: dict[str, dict[str, tuple[str, str] | None]] = {
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
        "BiT-L R152x4": None,  # another paper's checkpoint, pre-trained with SGD
    },
}
TASKS = {
    "digits": ("ten digits", "unseen digits"),
    "full": ("ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers"),
}
SETUP = {
    "digits": "Pre-training sees 7 of the 10 digits, in 250 or 836 images, for {steps} updates. "
    "The tasks are all ten digits from 100 images and the three unseen digits from 30, with one "
    "learning rate and 16 pixels throughout. The models have 0.07 to 0.3 million parameters.",
    "full": "BiT-L and Noisy Student come from other papers and are not trained. ImageNet is "
    "fine-tuned at 384 pixels; the recipes configs/finetune/imagenet_*.yaml use 512 and 518. "
    "ReaL and VTAB are not part of this study: evaluate.py --real and vtab.py measure them.",
}


def run(lab) -> Result:
    """Our rows, then the paper's; the last row of each is the cost of pre-training."""
    plan, tasks = PLANS[lab.scale.name], TASKS[lab.scale.name]
    lab.require([chosen[1] for chosen in plan.values() if chosen], tasks)
    trained = {name: chosen and lab.pretrain(*chosen) for name, chosen in plan.items()}
    ours = {
        task: {name: run and lab.finetune(run, task, SEEDS) for name, run in trained.items()}
        for task in tasks
    }
    names = [name for name in rows_of("table2")[0] if name != "task"]
    stand_ins = {name: _called(name, plan.get(name)) for name in names}
    rows = [["ours", task, *(means.get(name) for name in names)] for task, means in ours.items()]
    flops = {name: run and pretraining_flops(run) for name, run in trained.items()}
    costs = [f"{flops[name]:.2g}" if flops.get(name) else None for name in names]
    rows.append(["ours", "pre-training FLOPs", *costs])
    paper = [(row.pop("task"), row) for row in rows_of("table2")]
    for task, row in paper:
        rows.append(["paper", task, *(row[name] and Mean(*row[name]) for name in names)])
    days = [f"{days:,}" for days in published("table2")["core_days"]]
    rows.append(["paper", "TPUv3-core-days", *days])
    columns = [Column("source"), Column("task"), *(Column(stand_ins[n], ".2f") for n in names)]
    panels = {
        "ours": {stand_ins[name]: _column(ours, name) for name in plan if plan[name]},
        "paper": {stand_ins[name]: _column(dict(paper), name) for name in plan},
    }
    draw = functools.partial(plots.bars, panels, "top-1 accuracy (%)")
    return Result("table2", columns, rows, draw, _finding(ours, stand_ins), lab.setup(SETUP))


def _called(name, chosen):
    return f"{' on '.join(chosen)} ({name})" if chosen else name


def _column(rows, name):
    return {task: row[name] and Mean(*row[name]) for task, row in rows.items()}


def _finding(ours, stand_ins):
    sentences = []
    for task, means in ours.items():
        known = {name: mean for name, mean in means.items() if mean}
        best = max(known, key=lambda name: known[name].mean)
        sentences.append(f"{stand_ins[best]} is best at {task} with {known[best]:.2f} %.")
    return " ".join(sentences)
