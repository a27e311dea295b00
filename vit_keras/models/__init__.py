"""Functional Keras models, and models that are made from other models.

Models do not handle files: `vit_keras.weights` reads and writes their weights.
"""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from vit_keras.support.extras import typed_names

if TYPE_CHECKING:
    from vit_keras.layers.common import ViTOptions
    from vit_keras.models.architectures import positions_of
    from vit_keras.models.constructors import from_model_config, from_variant
    from vit_keras.models.dense_tasks import (
        detector,
        feature_pyramid,
        segmenter,
        with_joined_boxes,
        with_one_output,
    )
    from vit_keras.models.description import (
        class_names_of,
        copy_description,
        count_classes,
        ends_in_softmax,
        preprocessing_of,
        resizing_of,
        task_of,
    )
    from vit_keras.models.distillation import copy_student, distillation_model, teacher_variables
    from vit_keras.models.image_model import ImageModel
    from vit_keras.models.lora import add_lora, lora_layers, merge_lora
    from vit_keras.models.pretext import SelfDistillation, copy_encoder, pretext_model
    from vit_keras.models.relevance import explain
    from vit_keras.models.resized import with_image_size, with_patch_size
    from vit_keras.models.resnet import HybridViT, ResNet
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
        head_from_text,
        towers_of,
        with_unit_length,
    )
    from vit_keras.models.vit import VisionTransformer
    from vit_keras.support.preprocessing import Preprocessing

__getattr__, __all__ = typed_names(__name__)
