"""Figure 8: few-shot accuracy over compute for models scaled in depth, width, MLP and patches."""

import functools

from studies import plots
from studies.lab import pretraining_flops
from studies.results import Column, Mean, Result, published

# The base, its sizes, other sizes of each dimension, the data and the seeds.
PLANS: dict[str, tuple[str, dict, dict[str, dict], str, tuple]] = {
    "digits": (
        "ViT-B/4",
        {"num_layers": 4, "hidden_size": 48, "mlp_dim": 96, "patch_size": 4},
        {
            "depth": {"num_layers": (1, 2, 8)},
            "width": {"hidden_size": (16, 32, 96)},
            "MLP": {"mlp_dim": (24, 48, 384)},
            "patch": {"patch_size": (8, 2)},
        },
        "836",
        (0,),
    ),
    "full": (
        "ViT-L/32",
        {**published("figure8")["base"], "num_heads": 16},
        {
            "depth": {"num_layers": (1, 2, 4, 16, 32, 64)},
            "width": {"hidden_size": (256, 512, 2048)},
            "MLP": {"mlp_dim": (512, 1024, 4096)},
            "patch": {"patch_size": (56, 16, 8)},
        },
        "JFT-300M",
        (0,),
    ),
}
SETUP = {
    "digits": "The base has 4 layers, width 48, an MLP of 96, and 4x4 patches of 16x16 pixels. The "
    "models are pre-trained on 836 images of 7 of the digits for {steps} updates, with one seed. "
    "The few-shot task is 5-shot on all ten digits.",
    "full": "All models have 16 heads. The grid of sizes is ours, because the paper draws its "
    "points without printing their sizes.",
}
COLUMNS = (
    *(Column("scaled"), Column("size", "d"), Column("ours: FLOPs over the base's", ".3f")),
    Column("ours: 5-shot (%)", ".2f"),
)


def run(lab) -> Result:
    """One row for each model; the base is part of each group."""
    model, base, dimensions, upstream, seeds = PLANS[lab.scale.name]
    lab.require([upstream], ["ImageNet"])
    measure = functools.partial(_measure, lab, model, upstream, seeds, base)
    base_flops, base_accuracy = measure({})
    rows, curves = [], {}
    for name, sizes in dimensions.items():
        ((field, values),) = sizes.items()
        points = {base[field]: (base_flops, base_accuracy)}
        points |= {value: measure({field: value}) for value in values}
        for value, (flops, accuracy) in sorted(points.items()):
            rows.append([name, value, flops / base_flops, accuracy])
        by_flops = sorted(points.values())
        curves[name] = {flops / base_flops: accuracy for flops, accuracy in by_flops}
    labels = ("pre-training compute over the base's", "5-shot linear accuracy (%)")
    draw = functools.partial(plots.lines, {"ours": curves}, labels)
    gains = {
        name: max(curve.values()).mean - min(curve.values()).mean for name, curve in curves.items()
    }
    finding = "From the worst to the best size, accuracy rises by: " + ", ".join(
        f"{name} {gain:.1f} points" for name, gain in sorted(gains.items(), key=lambda g: -g[1])
    )
    return Result("figure8", COLUMNS, rows, draw, f"{finding}.", lab.setup(SETUP))


def _measure(lab, model, upstream, seeds, base, change):
    """The FLOPs of pre-training, and the mean accuracy over the seeds."""
    fields = {f"model.{name}": size for name, size in {**base, **change}.items()}
    label = "-".join(f"{name}-{size}" for name, size in change.items()) or "base"
    fields |= {"name": f"scaled-{label}"}
    runs = [lab.pretrain(model, upstream, **fields, seed=seed) for seed in seeds]
    accuracy = Mean.of([lab.few_shot(trained).mean for trained in runs])
    return pretraining_flops(runs[0]), accuracy
