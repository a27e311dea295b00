"""What a model costs: parameters, multiply-adds, activations, and the exaFLOPs of its training."""

from vit_keras.compute.costs import Costs, Row, abstract_model, flops, table
from vit_keras.compute.training import device_days, training_exaflops

__all__ = [
    "Costs",
    "Row",
    "abstract_model",
    "device_days",
    "flops",
    "table",
    "training_exaflops",
]
