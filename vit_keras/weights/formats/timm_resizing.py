"""The rules of resizing of timm's architectures.

timm resizes all added positions by one rule, and BEiT's biases by another. Kernels are resized by
the rule of the training that they come from, which for FlexiViT had no antialiasing (arXiv
2212.08013). The convolution leaves out pixels that fill no patch.
"""

from vit_keras.resizing import Resizing

TIMM = Resizing("bicubic_antialias", "bicubic_antialias", crops=True)
BEIT = Resizing("bilinear_geometric", "bicubic_antialias", crops=True)
# The rules of architectures whose names begin so.
OTHERS = {
    "flexivit_": Resizing("bicubic_antialias", "bilinear_half_pixel", crops=True),
    "beit_": BEIT,
    "beitv2_": BEIT,
}


def resizing_of(architecture: str) -> Resizing:
    """The rules for the architecture with a name, which may be empty."""
    return next((rules for name, rules in OTHERS.items() if architecture.startswith(name)), TIMM)
