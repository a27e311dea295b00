"""Table 6: the exaFLOPs of pre-training, counted from the models' layers."""

import functools

from studies import plots
from studies.results import Column, Result, rows_of
from vit_keras import inspection

COLUMNS = (
    *(Column("model"), Column("epochs", "d"), Column("ours: exaFLOPs", ",.1f")),
    *(Column("paper: exaFLOPs", ",d"), Column("ours / paper", ".3f")),
    Column("paper: ImageNet (%)", ".2f"),
)


def run(lab) -> Result:
    """One row for each of the paper's; Figure 5 draws the accuracies in the last column."""
    per_epoch = functools.cache(inspection.training_exaflops)
    rows = []
    points: dict[str, list] = {"ViT": [], "BiT": [], "Hybrid": []}
    for paper in rows_of("table6"):
        ours = per_epoch(paper["variant"]) * paper["epochs"]
        theirs = paper["exaflops"]
        rows.append(
            [paper["model"], paper["epochs"], ours, theirs, ours / theirs, paper["ImageNet"]]
        )
        points[family(paper["model"])].append((theirs, ours))
    furthest = max(rows, key=lambda row: abs(row[4] - 1))
    within = sum(abs(row[4] - 1) <= 0.03 for row in rows)
    finding = (
        f"{within} of {len(rows)} rows lie within 3 % of the paper. {furthest[0]} with "
        f"{furthest[1]} epochs differs most, by {100 * (furthest[4] - 1):+.2f} %. In the paper, 14 "
        "epochs of R50+ViT-L/16 cost 1.94 times as much as 7."
    )
    draw = functools.partial(plots.parity, points, " (exaFLOPs)")
    return Result("table6", COLUMNS, rows, draw, finding)


def family(model: str) -> str:
    """The family of a model in the paper's tables: "ViT", "BiT" or "Hybrid"."""
    if model.startswith("ViT"):
        return "ViT"
    return "Hybrid" if "ViT" in model else "BiT"
