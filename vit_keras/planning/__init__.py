"""What a run will take before it runs: memory, messages, time and cost on given devices."""

from vit_keras.planning.communication import Communication, communication
from vit_keras.planning.devices import DEVICES, Device, find_device
from vit_keras.planning.kept import PROGRAMS
from vit_keras.planning.memory import Memory, device_memory
from vit_keras.planning.plan import Plan, plan
from vit_keras.planning.step_time import StepTime, device_flops

__all__ = [
    "DEVICES",
    "PROGRAMS",
    "Communication",
    "Device",
    "Memory",
    "Plan",
    "StepTime",
    "communication",
    "device_flops",
    "device_memory",
    "find_device",
    "plan",
]
