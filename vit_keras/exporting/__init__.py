"""Export for servers and phones, from any backend, with proof."""

from vit_keras.exporting.exporter import export
from vit_keras.exporting.inference_model import for_inference
from vit_keras.exporting.targets import TARGETS

__all__ = ["TARGETS", "export", "for_inference"]
