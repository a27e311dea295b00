"""The state of torch's global random generator; the other backends have no such state."""

import numpy as np

from vit_keras.layers import backends


@backends.dispatch("generator_state")
def generator_state() -> np.ndarray | None:
    """Returns the state as uint8, or None on other backends."""
    return None


@backends.dispatch("set_generator_state")
def set_generator_state(state: np.ndarray) -> None:
    """Sets a state that `generator_state` returned; only on torch."""
    raise ValueError("Only torch has a generator to set. Received: a state on another backend")
