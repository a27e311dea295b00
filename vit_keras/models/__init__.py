"""Functional Keras models, and models that are made from other models.

Models do not handle files: `vit_keras.weights` reads and writes their weights.
"""

from vit_keras.models.boxes import detector, with_joined_boxes, with_one_output
from vit_keras.models.constructors import from_model_config, from_variant
from vit_keras.models.description import (
    class_names_of,
    copy_description,
    count_classes,
    ends_in_softmax,
    positions_of,
    preprocessing_of,
    resizing_of,
    task_of,
)
from vit_keras.models.distillation import copy_student, distillation_model, teacher_variables
from vit_keras.models.hybrid import HybridViT
from vit_keras.models.image_model import ImageModel
from vit_keras.models.lora import add_lora, lora_layers, merge_lora
from vit_keras.models.options import ViTOptions
from vit_keras.models.pretext import copy_encoder, pretext_model
from vit_keras.models.pyramid import feature_pyramid
from vit_keras.models.relevance import explain
from vit_keras.models.resized import with_image_size, with_patch_size
from vit_keras.models.resnet import ResNet
from vit_keras.models.segmentation import segmenter
from vit_keras.models.self_distillation import SelfDistillation
from vit_keras.models.surgery import (
    attention_maps,
    attention_rollout,
    intermediates,
    patch_grid,
    scale_head,
    split_frozen,
)
from vit_keras.models.text import (
    ImageText,
    TextTransformer,
    contrastive_model,
    towers_of,
    with_unit_length,
)
from vit_keras.models.vit import VisionTransformer
from vit_keras.models.zero_shot import head_from_text
from vit_keras.support.preprocessing import Preprocessing

__all__ = [
    "HybridViT",
    "ImageModel",
    "ImageText",
    "Preprocessing",
    "ResNet",
    "SelfDistillation",
    "TextTransformer",
    "ViTOptions",
    "VisionTransformer",
    "add_lora",
    "attention_maps",
    "attention_rollout",
    "class_names_of",
    "contrastive_model",
    "copy_description",
    "copy_encoder",
    "copy_student",
    "count_classes",
    "detector",
    "distillation_model",
    "ends_in_softmax",
    "explain",
    "feature_pyramid",
    "from_model_config",
    "from_variant",
    "head_from_text",
    "intermediates",
    "lora_layers",
    "merge_lora",
    "patch_grid",
    "positions_of",
    "preprocessing_of",
    "pretext_model",
    "resizing_of",
    "scale_head",
    "segmenter",
    "split_frozen",
    "task_of",
    "teacher_variables",
    "towers_of",
    "with_image_size",
    "with_joined_boxes",
    "with_one_output",
    "with_patch_size",
    "with_unit_length",
]
