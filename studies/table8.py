"""Table 8: no, 1-D, 2-D and relative position embeddings, at the stem or in every layer."""

import functools
import math
import statistics

from studies import plots
from studies.digits_scale import evaluated_once
from studies.results import Column, Mean, Result, rows_of

FIELDS = {"none": "none", "1-D": "learned", "2-D": "learned_2d", "relative": "relative"}
PLANS = {  # model, data, seeds, and changes to the recipe
    "digits": (
        "ViT-B/2",
        "836",
        range(5),
        {
            "model.image_size": 8,
            "model.num_layers": 2,
            "batch": 32,
            "optimizer.learning_rate": 3e-3,
        },
    ),
    "full": ("ViT-B/16", "JFT-300M", (0,), {}),
}
SETUP = {
    "digits": "A ViT with 2 layers and width 48 sees 8x8 pixels as 16 patches of 2x2. It is "
    "pre-trained on 836 images of 7 of the digits for {positions_steps} updates of 32 images, with "
    "five seeds. The few-shot task is 5-shot on all ten digits. Their patches are strokes, which "
    "say little without their positions.",
    "full": "One seed is used, as in the paper.",
}
COLUMNS = (
    *(Column("embedding"), Column("added at"), Column("ours: 5-shot (%)", ".2f")),
    *(Column("ours: held-out accuracy (%)", ".2f"), Column("paper: 5-shot (%)", ".2f")),
)


def run(lab) -> Result:
    """Measures 5-shot linear accuracy, as in the paper, and top-1 accuracy over the seeds."""
    model, upstream, seeds, changes = PLANS[lab.scale.name]
    if lab.scale.name == "digits":
        changes = {**changes, **evaluated_once(lab.scale.positions_steps)}
    lab.require([upstream], ["ImageNet"])
    rows = []
    for paper in rows_of("table8"):
        kind, at = paper["embedding"], paper["at"]
        fields = {"model.position_embedding": FIELDS[kind], "model.position_embedding_at": at}
        fields["name"] = f"positions-{FIELDS[kind]}-{at}"
        runs = [lab.pretrain(model, upstream, **changes, **fields, seed=seed) for seed in seeds]
        shots = Mean.of([lab.few_shot(trained).mean for trained in runs])
        held_out = Mean.of([trained.accuracy_percent for trained in runs])
        rows.append([kind, at, shots, held_out, paper["accuracy"]])
    panels = {
        title: {"": {_label(row): row[column] for row in rows}}
        for title, column in (("ours, mean ± std over seeds", 2), ("paper", 4))
    }
    draw = functools.partial(plots.bars, panels, "5-shot linear accuracy (%)")
    finding = _finding(rows, len(seeds))
    return Result("table8", COLUMNS, rows, draw, finding, lab.setup(SETUP))


def _label(row):
    return row[0] if row[0] in ("none", "relative") else f"{row[0]}\n{row[1]}"


def _finding(rows, seeds):
    """Compares "none" with the others, and the others with each other and with chance."""
    none, others = rows[0][2], [row[2] for row in rows[1:]]
    means = [other.mean for other in others]
    gap, spread = statistics.mean(means) - none.mean, max(means) - min(means)
    text = f"Without positions, the accuracy is {none:.2f} %, {gap:.1f} points below the mean of "
    text += f"the others. The others lie within {spread:.1f} points of each other."
    if seeds < 2:
        return text
    variance = statistics.mean(other.std**2 for other in (none, *others))
    error = math.sqrt(2 * variance / seeds)
    return f"{text} Two means of {seeds} seeds differ by {error:.1f} points by chance (1 sigma)."
