"""The steps of a run, and experiments of several runs: sweeps and transfer benchmarks."""

from vit_keras.experiments.run_model import first_training_images, open_checkpoint
from vit_keras.experiments.soup import Soup, development_judge, make_soup, soup_sources
from vit_keras.experiments.sweeps import cross_validate, sweep
from vit_keras.experiments.training_run import train_run
from vit_keras.experiments.vtab import fine_tune_tasks

__all__ = [
    "Soup",
    "cross_validate",
    "development_judge",
    "fine_tune_tasks",
    "first_training_images",
    "make_soup",
    "open_checkpoint",
    "soup_sources",
    "sweep",
    "train_run",
]
