"""The rules of resizing of timm's architectures.

timm resizes all positions by one rule. Kernels are resized by the rule of the training that they
come from, which for FlexiViT had no antialiasing (arXiv 2212.08013).
"""

from vit_keras.resizing import Resizing

TIMM = Resizing("bicubic_antialias", "bicubic_antialias")
# The rules of architectures whose names begin so.
TRAINED_BY = {"flexivit_": Resizing("bicubic_antialias", "bilinear_half_pixel")}


def resizing_of(architecture: str) -> Resizing:
    """The rules for the architecture with a name, which may be empty."""
    return next((r for start, r in TRAINED_BY.items() if architecture.startswith(start)), TIMM)
