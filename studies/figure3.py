"""Figure 3: accuracy of ViTs and ResNets on one task over the size of the pre-training data."""

import functools

from studies import plots
from studies.results import Column, Result, published
from studies.table5 import PLANS, paper_rows, transfers

TASK = {"digits": "ten digits", "full": "ImageNet"}
RESNETS = {"digits": ("BiT-R8", "BiT-R26"), "full": ()}
SETUP = {
    "digits": "80, 250 and 836 images of 7 of the digits stand for the three data sets. The models "
    "are fine-tuned on 100 images of all ten digits, with one seed.",
    "full": "BiT is left out: its recipes for ImageNet and ImageNet-21k belong to another paper.",
}


def run(lab) -> Result:
    """Takes Table 5's runs on one task, and adds BiT's."""
    (vits, upstreams), task = PLANS[lab.scale.name], TASK[lab.scale.name]
    lab.require(upstreams, [task])
    accuracies = transfers(lab, (*vits, *RESNETS[lab.scale.name]), upstreams, [task])
    ours = {model: by_upstream for (_, model), by_upstream in accuracies.items()}
    names = published("table5")["upstreams"]
    stand_ins = [f"{u} ({n})" if u != n else n for u, n in zip(upstreams, names)]
    paper = {f"ViT-{m}": numbers for t, m, *numbers in paper_rows() if t == "ImageNet"}
    rows = [["ours", model, *by_upstream.values()] for model, by_upstream in ours.items()]
    rows += [["paper", model, *numbers] for model, numbers in paper.items()]
    columns = [Column("source"), Column("model"), *(Column(name, ".2f") for name in stand_ins)]
    panels = {
        f"ours: {task}": ours,
        "paper: ImageNet": {m: dict(zip(names, numbers)) for m, numbers in paper.items()},
    }
    draw = functools.partial(plots.lines, panels, ("pre-training data", "top-1 accuracy (%)"))
    finding = leaders(ours, upstreams, " images" if lab.scale.name == "digits" else "")
    return Result("figure3", columns, rows, draw, finding, lab.setup(SETUP))


def leaders(ours, upstreams, unit) -> str:
    """Says in a sentence which model is best after pre-training on each of `upstreams`.

    Args:
        ours: `{model: {upstream: accuracy (%)}}`, numbers or a `Mean` each.
        upstreams: Names of data sets, or numbers of images.
        unit: What follows an upstream in the sentence, such as " images".
    """
    clauses = []
    for upstream in upstreams:
        known = {name: values[upstream] for name, values in ours.items() if values.get(upstream)}
        best = max(known, key=lambda name: known[name])
        clauses.append(f"{best} leads after {upstream}{unit} with {known[best]:.1f} %")
    return "; ".join(clauses) + "."
