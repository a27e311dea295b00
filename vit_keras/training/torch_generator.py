"""The state of torch's global random generator; the other backends have no such state."""

import keras
import numpy as np


def generator_state() -> np.ndarray | None:
    """Returns the state as uint8, or None on other backends."""
    if keras.backend.backend() != "torch":
        return None
    import torch

    return np.array(torch.get_rng_state().numpy())


def set_generator_state(state: np.ndarray) -> None:
    """Sets a state that `generator_state` returned; only on torch."""
    import torch

    torch.set_rng_state(torch.from_numpy(state))
