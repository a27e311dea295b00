"""What a run will take before it runs: memory, messages, time and cost on given devices."""

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
