"""Train a model on a data set, or continue a run that was stopped.

Without --config and --dataset, the model learns handwritten digits with the recipe `digits`.

examples:
  vit-keras train                                          # the handwritten digits
  vit-keras train --config finetune --dataset folder:photos --model.weights ViT-B_16.npz
  vit-keras train --config scratch/small --dataset folder:photos --epochs 200
  vit-keras train --config finetune/pets --sweep           # a recipe of the paper
  torchrun --nproc-per-node 4 -m vit_keras train --distribution multi_worker
"""

import re
from collections.abc import Sequence
from typing import Any

from vit_keras import config
from vit_keras.commands import options as shared

# The fields in the short help; `--help_all` shows all of them.
ESSENTIAL = (
    *("dataset", "workdir", "epochs", "total_steps", "batch", "seed", "sweep", "task", "patience"),
    *("distribution", "model.variant", "model.weights", "model.image_size", "model.dtype"),
    *("optimizer.learning_rate", "data.on_corrupt", "augment.flip"),
)


def parse(parser: shared.Parser, arguments: Sequence[str]) -> Any:
    """Reads a `Config` instead of a few options; returns --list or --help_all as text."""
    for name in {"--help_all", "--list"}.intersection(arguments):
        return name
    return config.parse_config(arguments)


def needs_models(options: Any) -> bool:
    return not isinstance(options, str)


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    parser.usage = "%(prog)s [--config RECIPE] [--FIELD VALUE ...]"
    recipe = "recipe's name or YAML file; a later one overrides an earlier one (none)"
    add("--config", "RECIPE", recipe)
    for name in ESSENTIAL:
        add(f"--{name}", "VALUE", _explanation(name))
    flag("--list", "print the names of the recipes")
    flag("--help_all", "print all fields")


def _explanation(name):
    """Returns the first clause of a field's explanation in its dataclass, and its default."""
    text, default = config.explain_field(name)
    text, *more = re.split(r"[;.] ", text)
    if default is None:  # the explanation says what null means
        stands = [clause.removeprefix("null for ") for clause in more if "null for" in clause]
        default = stands[0].split(",")[0] if stands else "none"
    default = "none" if default == () else default
    return (text if default is False else f"{text} ({default})").replace("%", "%%")


def run(options: Any) -> None:
    """Trains, or prints what `--list` and `--help_all` ask for."""
    if options == "--list":
        print("\n".join(config.recipe_names()))
        return
    if options == "--help_all":
        print(config.explain_fields())
        return

    from vit_keras import experiments

    if options.sweep:
        print(experiments.sweep(options))
    elif options.folds:
        print(experiments.cross_validate(options))
    else:
        experiments.train_run(options)
