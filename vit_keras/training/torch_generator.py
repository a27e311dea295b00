"""Torch's global generator; the other backends have none."""

import keras
import numpy as np


def generator_state() -> np.ndarray | None:
    """The state of torch's global generator, uint8; None on other backends, which have none."""
    if keras.backend.backend() != "torch":
        return None
    import torch

    return np.array(torch.get_rng_state().numpy())


def set_generator_state(state: np.ndarray) -> None:
    import torch

    torch.set_rng_state(torch.from_numpy(state))
