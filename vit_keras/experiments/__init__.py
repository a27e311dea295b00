"""What a run is made of, and what is made of runs: sweeps and benchmarks of transfer."""

from vit_keras.experiments.cross_validation import cross_validate
from vit_keras.experiments.preview import first_training_images
from vit_keras.experiments.rate_sweep import sweep
from vit_keras.experiments.run_model import open_checkpoint
from vit_keras.experiments.soup import Soup, make_soup, soup_sources
from vit_keras.experiments.soup_judge import development_judge
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
