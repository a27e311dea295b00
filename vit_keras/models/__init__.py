"""Functional Keras models; they know nothing of files."""

from vit_keras.models.from_variant import from_variant
from vit_keras.models.hybrid import HybridViT
from vit_keras.models.image_model import ImageModel, Preprocessing
from vit_keras.models.resnet import ResNet
from vit_keras.models.surgery import attention_maps, intermediates, patch_grid, with_image_size
from vit_keras.models.vit import VisionTransformer

__all__ = [
    "HybridViT",
    "ImageModel",
    "Preprocessing",
    "ResNet",
    "VisionTransformer",
    "attention_maps",
    "from_variant",
    "intermediates",
    "patch_grid",
    "with_image_size",
]
