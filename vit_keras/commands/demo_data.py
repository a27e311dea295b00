"""`vit-keras demo-data` makes small data sets of real photographs to try the commands on."""

import argparse

from vit_keras.commands import options as shared

EXAMPLES = (
    "vit-keras demo-data photos pictures",
    "vit-keras demo-data tables data/tables --count 300 --test_count 100",
)
NOTE = """The pictures are crops of the two photographs that come with scikit-learn, made in seconds
without a network. No place of a photograph is in both training and test pictures."""


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    from vit_keras.data import demo

    text = "; ".join(f"{name}: {holds}" for name, (holds, *_) in demo.KINDS.items())
    add("name", "NAME", text, choices=list(demo.KINDS))
    add("folder", "FOLDER", "the folder to make")
    add("--count", "N", "training pictures (NAME's default)", int)
    add("--test_count", "N", "test pictures (NAME's default)", int)
    add("--seed", None, "decides everything random (0)", int, default=0)


def run(options: argparse.Namespace) -> None:
    from vit_keras.data import demo

    sizes = options.count, options.test_count
    count = demo.make(options.name, options.folder, *sizes, options.seed)
    print(f"{options.folder}: {count} pictures; {demo.KINDS[options.name][0]}")


def needs_models(options: argparse.Namespace) -> bool:
    return False
