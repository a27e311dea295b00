"""Figure 5: fine-tuned accuracy of ViTs, ResNets and hybrids over pre-training compute."""

import functools
import statistics

from studies import plots
from studies.digits_scale import UPSTREAM_IMAGES
from studies.full_scale import epochs_of
from studies.lab import pretraining_flops
from studies.results import Column, Result, rows_of
from studies.table6 import family

AVERAGED = ("ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers")
TASKS = {"digits": ("ten digits", "unseen digits"), "full": AVERAGED}
SMALL = (
    *("ViT-b/4", "ViT-B/4", "ViT-L/4", "Hybrid-b/4", "Hybrid-B/4", "Hybrid-L/4"),
    *("BiT-R8", "BiT-R14", "BiT-R26"),
)
SETUP = {
    "digits": "The models are pre-trained on 836 images of 7 of the digits for {steps} updates. "
    "The average covers two tasks: all ten digits from 100 images, and the three unseen digits "
    "from 30. Hybrids have the root and one unit of a ResNet below the same transformer. One seed.",
    "full": "",
}
COLUMNS = (
    *(Column("source"), Column("family"), Column("model"), Column("epochs", ".0f")),
    *(Column("pre-training FLOPs", ".3g"), Column("average accuracy (%)", ".2f")),
)


def run(lab) -> Result:
    """One row for each model; the panels order a family by its compute."""
    plan, upstream = _plan(lab.scale.name)
    lab.require([upstream], TASKS[lab.scale.name])
    rows = []
    for model, epochs, changes in plan:
        trained = lab.pretrain(model, upstream, **changes)
        average = statistics.mean(lab.finetune(trained, t).mean for t in TASKS[lab.scale.name])
        kind = model.split("-")[0] if lab.scale.name == "digits" else family(model)
        epochs = epochs or trained.config.total_steps * trained.config.batch / UPSTREAM_IMAGES
        rows.append(["ours", kind, model, epochs, pretraining_flops(trained), average])
    for row in rows_of("table6"):
        average = statistics.mean(row[task] for task in AVERAGED)
        flops = 1e18 * row["exaflops"]
        rows.append(["paper", family(row["model"]), row["model"], row["epochs"], flops, average])
    panels: dict[str, dict[str, dict]] = {"ours": {}, "paper": {}}
    for source, kind, _, _, flops, average in sorted(rows, key=lambda row: row[4]):
        panels[source].setdefault(kind, {})[flops] = average
    labels = ("pre-training compute (FLOPs)", "average accuracy (%)")
    draw = functools.partial(plots.lines, panels, labels)
    return Result("figure5", COLUMNS, rows, draw, _finding(panels["ours"]), lab.setup(SETUP))


def _plan(scale):
    """Returns (model, epochs, changes) for each run, and the data; None: the recipe's epochs."""
    if scale == "digits":
        return [(model, None, {}) for model in SMALL], "836"
    rows = rows_of("table6")
    plan = [(row["model"], row["epochs"], epochs_of("JFT-300M", row["epochs"])) for row in rows]
    return plan, "JFT-300M"


def _finding(ours):
    best = {kind: max(points.items(), key=lambda point: point[1]) for kind, points in ours.items()}
    return " ".join(
        f"The best {kind} reaches {accuracy:.2f} % with {flops:.2g} FLOPs."
        for kind, (flops, accuracy) in best.items()
    )
