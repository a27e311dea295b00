"""Table 6: the exaFLOPs of pre-training, counted off the models' layers."""

import functools

from vit_keras import compute
from vit_keras.reproduce import plots
from vit_keras.reproduce.results import Column, Result, rows_of

COLUMNS = (
    *(Column("model"), Column("epochs", "d"), Column("ours: exaFLOPs", ",.1f")),
    *(Column("paper: exaFLOPs", ",d"), Column("ours / paper", ".3f")),
    Column("paper: ImageNet (%)", ".2f"),
)


def run(lab) -> Result:
    """All 18 rows; the paper's accuracies beside them are drawn in Figure 5."""
    per_epoch = functools.cache(compute.training_exaflops)
    rows, points = [], {"ViT": [], "BiT": [], "Hybrid": []}
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
        f"{within} of {len(rows)} rows lie within 3 %; the furthest is {furthest[0]} of "
        f"{furthest[1]} epochs, {100 * (furthest[4] - 1):+.2f} %. The paper's 14 epochs of "
        "R50+ViT-L/16 cost 1.94 times what its 7 do."
    )
    draw = functools.partial(plots.parity, points, " (exaFLOPs)")
    return Result("table6", COLUMNS, rows, draw, finding)


def family(model: str) -> str:
    """ViT, BiT or Hybrid, of a name in the paper's tables."""
    if model.startswith("ViT"):
        return "ViT"
    return "Hybrid" if "ViT" in model else "BiT"
