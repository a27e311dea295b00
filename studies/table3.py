"""Table 3: the recipes of pre-training in configs/pretrain, compared with the paper's."""

import functools

from studies import plots
from studies.results import Column, Result, published, rows_of
from vit_keras.config import read_config

COLUMNS = (
    *(Column("models"), Column("data set"), Column("ours: epochs", ".4g"), Column("paper: epochs")),
    *(Column("ours: learning rate", "g"), Column("paper: learning rate", "g")),
    *(Column("ours: decay"), Column("paper: decay")),
    *(Column("ours: weight decay", "g"), Column("paper: weight decay", "g")),
    *(Column("ours: dropout", "g"), Column("paper: dropout", "g"), Column("ours: recipe")),
)


def run(lab) -> Result:
    """One row for each recipe, beside the values that the paper prints."""
    rows, faults = [], []
    points: dict[str, list] = {"epochs": [], "learning rate": [], "weight decay": []}
    for paper in rows_of("table3"):
        config = read_config(f"pretrain/{paper['config']}")
        ours, faulty = _values(config, paper), _shared_faults(config)
        theirs = [paper[key] for key in KEYS]
        equal = round(ours[0]) in paper["epochs"] and ours[1:] == theirs[1:]
        faults += [] if equal and not faulty else [paper["config"]]
        printed = ["/".join(map(str, paper["epochs"])), *theirs[1:]]
        pairs = [cell for pair in zip(ours, printed) for cell in pair]
        rows.append([paper["models"], paper["dataset"], *pairs, f"pretrain/{paper['config']}"])
        points["epochs"].append((paper["epochs"][-1], ours[0]))
        points["learning rate"].append((paper["learning_rate"], ours[1]))
        points["weight decay"].append((paper["weight_decay"], ours[3]))
    finding = (
        f"{len(rows)} of {len(rows)} recipes state what the paper prints, with its batch size, "
        "warmup, betas and resolution."
        if not faults
        else f"These recipes differ from the paper: {', '.join(faults)}."
    )
    return Result("table3", COLUMNS, rows, functools.partial(plots.parity, points, ""), finding)


KEYS = ("epochs", "learning_rate", "decay", "weight_decay", "dropout")


def _values(config, paper):
    images = published("table3")["images"][paper["dataset"]]
    optimizer = config.optimizer
    epochs = config.total_steps * config.batch / images
    return [
        *(epochs, optimizer.learning_rate, optimizer.decay_type, optimizer.weight_decay),
        config.model.dropout_rate,
    ]


def _shared_faults(config):
    """The names of values that the paper shares between all rows and `config` differs in."""
    values = {"batch": config.batch, "image_size": config.model.image_size}
    values |= {key: getattr(config.optimizer, key) for key in ("warmup_steps", "beta_1", "beta_2")}
    return [key for key, value in published("table3")["shared"].items() if values[key] != value]
