"""Figure 5: accuracy after fine-tuning over pre-training compute, ViTs, ResNets and hybrids."""

import functools
import statistics

from vit_keras.reproduce import plots
from vit_keras.reproduce.costs import pretraining_flops
from vit_keras.reproduce.digits_tables import UPSTREAM_IMAGES
from vit_keras.reproduce.full import epochs_of
from vit_keras.reproduce.results import Column, Result, rows_of
from vit_keras.reproduce.studies.table6 import family

AVERAGED = ("ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers")
TASKS = {"digits": ("ten digits", "unseen digits"), "full": AVERAGED}
SMALL = (
    *("ViT-b/4", "ViT-B/4", "ViT-L/4", "Hybrid-b/4", "Hybrid-B/4", "Hybrid-L/4"),
    *("BiT-R8", "BiT-R14", "BiT-R26"),
)
SMALLER = {
    "digits": "pre-trained on 836 images of 7 of the digits for 400 updates; the average is of two "
    "tasks, all ten digits from 100 images and the three unseen ones from 30; hybrids have the "
    "root and one unit of a ResNet below the same transformer; one seed.",
    "full": "",
}
COLUMNS = (
    *(Column("whose"), Column("family"), Column("model"), Column("epochs", ".0f")),
    *(Column("pre-training FLOPs", ".3g"), Column("average accuracy (%)", ".2f")),
)


def run(lab) -> Result:
    """One row a model, from cheap to dear within a family."""
    plan, upstream = _plan(lab.scale)
    lab.require([upstream], TASKS[lab.scale])
    rows = []
    for model, epochs, changes in plan:
        trained = lab.pretrain(model, upstream, **changes)
        average = statistics.mean(lab.finetune(trained, t).mean for t in TASKS[lab.scale])
        kind = model.split("-")[0] if lab.scale == "digits" else family(model)
        epochs = epochs or trained.config.total_steps * trained.config.batch / UPSTREAM_IMAGES
        rows.append(["ours", kind, model, epochs, pretraining_flops(trained), average])
    for row in rows_of("table6"):
        average = statistics.mean(row[task] for task in AVERAGED)
        flops = 1e18 * row["exaflops"]
        rows.append(["paper", family(row["model"]), row["model"], row["epochs"], flops, average])
    panels = {"ours": {}, "paper": {}}
    for whose, kind, _, _, flops, average in sorted(rows, key=lambda row: row[4]):
        panels[whose].setdefault(kind, {})[flops] = average
    labels = ("pre-training compute (FLOPs)", "average accuracy (%)")
    draw = functools.partial(plots.lines, panels, labels)
    return Result("figure5", COLUMNS, rows, draw, _finding(panels["ours"]), SMALLER[lab.scale])


def _plan(scale):
    """Models, epochs (None: as many as the recipe has) and changes; and their data."""
    if scale == "digits":
        return [(model, None, {}) for model in SMALL], "836"
    rows = rows_of("table6")
    plan = [(row["model"], row["epochs"], epochs_of("JFT-300M", row["epochs"])) for row in rows]
    return plan, "JFT-300M"


def _finding(ours):
    best = {kind: max(points.items(), key=lambda point: point[1]) for kind, points in ours.items()}
    return (
        "; ".join(
            f"the best {kind} has {accuracy:.2f} % for {flops:.2g} FLOPs"
            for kind, (flops, accuracy) in best.items()
        )
        + "."
    )
