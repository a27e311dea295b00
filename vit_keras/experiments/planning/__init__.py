"""Estimates what a run will take on given devices: memory, communication, time and cost."""

from vit_keras.experiments.planning.devices import DEVICES, Device, find_device
from vit_keras.experiments.planning.memory import Memory, compiled_memory, device_memory
from vit_keras.experiments.planning.plan import (
    Communication,
    Plan,
    StepTime,
    communication,
    device_flops,
    plan,
)

__all__ = [
    "DEVICES",
    "Communication",
    "Device",
    "Memory",
    "Plan",
    "StepTime",
    "communication",
    "compiled_memory",
    "device_flops",
    "device_memory",
    "find_device",
    "plan",
]
