"""Figure 3: accuracy on one task over the size of the pre-training data, ViTs and ResNets."""

import functools

from vit_keras.reproduce import plots
from vit_keras.reproduce.results import Column, Result, published
from vit_keras.reproduce.studies.table5 import PLANS, paper_rows, transfers

TASK = {"digits": "ten digits", "full": "ImageNet"}
RESNETS = {"digits": ("BiT-R8", "BiT-R26"), "full": ()}
SMALLER = {
    "digits": "80, 250 and 836 images of 7 of the digits stand for the three data sets; fine-tuned "
    "on 100 images of all ten; one seed.",
    "full": "without BiT, whose ImageNet and ImageNet-21k recipes are another paper's.",
}


def run(lab) -> Result:
    """Table 5's runs on one task, and BiT's."""
    (vits, upstreams), task = PLANS[lab.scale], TASK[lab.scale]
    lab.require(upstreams, [task])
    found = transfers(lab, (*vits, *RESNETS[lab.scale]), upstreams, [task])
    ours = {model: accuracies for (_, model), accuracies in found.items()}
    names = published("table5")["upstreams"]
    stand_ins = [f"{u} ({n})" if u != n else n for u, n in zip(upstreams, names)]
    paper = {f"ViT-{m}": numbers for t, m, *numbers in paper_rows() if t == "ImageNet"}
    rows = [["ours", model, *accuracies.values()] for model, accuracies in ours.items()]
    rows += [["paper", model, *numbers] for model, numbers in paper.items()]
    columns = [Column("whose"), Column("model"), *(Column(name, ".2f") for name in stand_ins)]
    panels = {
        f"ours: {task}": ours,
        "paper: ImageNet": {m: dict(zip(names, numbers)) for m, numbers in paper.items()},
    }
    draw = functools.partial(plots.lines, panels, ("pre-training data", "top-1 accuracy (%)"))
    finding = leaders(ours, upstreams, "pre-trained on")
    return Result("figure3", columns, rows, draw, finding, SMALLER[lab.scale])


def leaders(ours, places, relation) -> str:
    """Who is best at each place, in words; `ours` is {series: {place: a number or a Mean}}."""
    parts = []
    for place in places:
        known = {name: values[place] for name, values in ours.items() if values.get(place)}
        best = max(known, key=lambda name: known[name])
        parts.append(f"{relation} {place} {best} leads with {known[best]:.1f} %")
    return "; ".join(parts) + "."
