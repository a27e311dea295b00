"""The costs of a model: parameters, multiply-adds, activations, and exaFLOPs of training."""

from vit_keras.compute.costs import Costs, Row, abstract_model, flops, table
from vit_keras.compute.rules import RULES, Convention, count
from vit_keras.compute.training import device_days, training_exaflops

__all__ = [
    "RULES",
    "Convention",
    "Costs",
    "Row",
    "abstract_model",
    "count",
    "device_days",
    "flops",
    "table",
    "training_exaflops",
]
