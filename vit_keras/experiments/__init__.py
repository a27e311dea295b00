"""The steps of a run, and experiments that span several runs: sweeps and transfer benchmarks."""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from vit_keras.support.extras import typed_names

if TYPE_CHECKING:
    from vit_keras.experiments.run_model import first_training_images, open_checkpoint
    from vit_keras.experiments.soup import Soup, development_judge, make_soup, soup_sources
    from vit_keras.experiments.sweeps import cross_validate, fine_tune_tasks, sweep
    from vit_keras.experiments.training_run import train_run

__getattr__, __all__ = typed_names(__name__)
