"""Torch's global random generator."""

import numpy as np
import torch


def generator_state() -> np.ndarray:
    """The state of the generator, uint8."""
    return np.array(torch.get_rng_state().numpy())


def set_generator_state(state: np.ndarray) -> None:
    torch.set_rng_state(torch.from_numpy(state))
