"""The architectures of models and the numerics of projects, for the formats of files."""

from vit_keras.models.architectures import PUBLISHED_RESIZING as PUBLISHED_RESIZING
from vit_keras.models.architectures import HybridArchitecture as HybridArchitecture
from vit_keras.models.architectures import Numerics as Numerics
from vit_keras.models.architectures import ResNetArchitecture as ResNetArchitecture
from vit_keras.models.architectures import (
    VisionTransformerArchitecture as VisionTransformerArchitecture,
)
from vit_keras.models.architectures import class_for as class_for
from vit_keras.models.architectures import grid_of as grid_of
