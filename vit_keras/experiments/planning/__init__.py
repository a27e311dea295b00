"""Estimates what a run will take on given devices: memory, communication, time and cost."""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from vit_keras.support.extras import typed_names

if TYPE_CHECKING:
    from vit_keras.experiments.planning.memory import Memory, compiled_memory, device_memory
    from vit_keras.experiments.planning.plans import (
        DEVICES,
        Communication,
        Device,
        Plan,
        StepTime,
        communication,
        device_flops,
        plan,
    )

__getattr__, __all__ = typed_names(__name__)
