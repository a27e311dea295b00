"""The rules of resizing of timm's architectures: those by which timm loads a file of another size.

timm loads positions and kernels by one rule, and BEiT's biases by another. It loads FlexiViT and
RADIO without antialiasing, and two RADIOs with aligned corners. `set_input_size`, which resizes a
model of timm in memory, takes "bicubic_antialias" for all positions and kernels instead. The
convolution leaves out pixels that fill no patch.
"""

import re

from vit_keras.resizing import Resizing

TIMM = Resizing("bicubic_antialias", "bicubic_antialias", crops=True)
# The rules of architectures whose names have these patterns; the first that is found counts.
OTHERS = {
    r"^beit(v2)?_": Resizing("bilinear_geometric", "bicubic_antialias", crops=True),
    r"(base|huge)_patch16_radio_v3": Resizing("bilinear", "bilinear_half_pixel", crops=True),
    r"flexi|radio": Resizing("bilinear_half_pixel", "bilinear_half_pixel", crops=True),
}


def resizing_of(architecture: str) -> Resizing:
    """The rules for the architecture with a name, which may be empty."""
    rows = (rules for pattern, rules in OTHERS.items() if re.search(pattern, architecture))
    return next(rows, TIMM)
