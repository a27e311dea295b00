"""Figure 9: the class token and global average pooling at several learning rates."""

import functools

from studies import plots
from studies.results import Column, Mean, Result, published

PLANS = {  # model, data, factor of the paper's learning rates, evaluations, seeds
    "digits": ("ViT-B/4", "836", 2.5, 10, (0, 1)),
    "full": ("ViT-B/16", "JFT-300M", 1.0, 52, (0,)),
}
SETUP = {
    "digits": "The models are pre-trained on 836 images of 7 of the digits for {steps} updates, "
    "with two seeds. Learning rates are 2.5 times the paper's, in the same ratio. The few-shot "
    "task is 5-shot on the seven classes.",
    "full": "The few-shot task is 5-shot on the classes of pre-training, not on ImageNet.",
}
COLUMNS = (
    *(Column("classifier"), Column("paper: learning rate", "g")),
    *(Column("ours: learning rate", "g"), Column("ours: 5-shot at the end (%)", ".2f")),
    Column("ours: held-out accuracy (%)", ".2f"),
)


def run(lab) -> Result:
    """One row for each run; the picture shows few-shot accuracy during training."""
    model, upstream, factor, count, seeds = PLANS[lab.scale.name]
    lab.require([upstream])
    rows, curves = [], {}
    for classifier, rate in published("figure9")["rows"]:
        change = {"model.classifier": classifier, "optimizer.learning_rate": factor * rate}
        runs = [_train(lab, model, upstream, count, seed, change) for seed in seeds]
        history = [[row for row in trained.metrics if "fewshot_5" in row] for trained in runs]
        curve = {
            evaluations[0]["step"]: Mean.of([100 * row["fewshot_5"] for row in evaluations])
            for evaluations in zip(*history)
        }
        held_out = Mean.of([trained.accuracy_percent for trained in runs])
        rows.append([classifier, rate, factor * rate, list(curve.values())[-1], held_out])
        curves[f"{classifier}, {factor * rate:g}"] = curve
    labels = ("updates", "5-shot linear accuracy (%)")
    draw = functools.partial(plots.lines, {"ours": curves}, labels, log=False)
    token, high, low = (row[3].mean for row in rows)
    finding = (
        f"Pooling differs from the class token by {high - token:+.1f} points at the same learning "
        f"rate and by {low - token:+.1f} at the lower one."
    )
    return Result("figure9", COLUMNS, rows, draw, finding, lab.setup(SETUP))


def _train(lab, model, upstream, count, seed, change):
    classifier, rate = change.values()
    changes = {
        **change,
        "name": f"{classifier}-{rate:g}",
        "seed": seed,
        "fewshot_every": 1,
        "eval_every": lab.scale.pretraining(model, upstream, {}).total_steps // count or 1,
    }
    return lab.pretrain(model, upstream, **changes)
