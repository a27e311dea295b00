"""Copies of a model for other image and patch sizes."""

import dataclasses

import keras

from vit_keras.layers import AddPositionEmbs, AddPositionEmbs2D, PatchEmbedding
from vit_keras.layers.base import refuse_quantized
from vit_keras.layers.common import pair
from vit_keras.models import surgery
from vit_keras.models.description import copy_description, resizing_of, task_of
from vit_keras.models.image_model import ImageModel
from vit_keras.models.lora import lora_layers, merge_lora
from vit_keras.support import interpolation as resizers
from vit_keras.support.preprocessing import Resizing

RELATIVE_TABLE = "/relative_2d/table"  # the end of the paths of BEiT's biases


def with_image_size(
    model: keras.Model, image_size: int | tuple[int, int] | None, interpolation: str | None = None
) -> keras.Model:
    """Copies a model and its weights for images of another size (Section 3.2).

    Position embeddings are interpolated in 2-D; embeddings of columns and rows are interpolated
    along their own axis, and BEiT's biases along their offsets. Values for tokens before the
    patches stay unchanged. All other weights are copied, and none are shared. Adapters are merged.

    Args:
        model: A functional model of this package.
        image_size: Pixels, an int or (height, width). None makes a model for images of any size,
            which interpolates its learned positions in every call and ignores the pixels at the
            right and bottom that do not fill a patch.
        interpolation: A key of `vit_keras.support.interpolation.INTERPOLATIONS`. None uses
            `model.resizing.positions`, the rule of the weights' original code.

    Returns:
        A model with the preprocessing and the class names of `model`.

    Raises:
        ValueError: If the patch size, or a hybrid's total stride, does not divide `image_size` and
            `model.resizing.crops` is False or the task is masks; if `interpolation` is unknown; if
            the model has "relative" position embeddings, which fit only one grid of patches; or if
            `image_size` is None and the model has layers for one grid, such as windows or a
            segmentation head.

    Example:
        >>> with_image_size(model, 384).input_shape  # of a model for 224 pixels
        (None, 384, 384, 3)
        >>> with_image_size(model, None).input_shape
        (None, None, None, 3)
    """
    rules = resizing_of(model).replaced(interpolation)
    if image_size is None:
        return _of_any_size(model, rules.positions)
    return _resized(model, rules, image_size=pair(image_size, "image_size"))


def with_patch_size(
    model: keras.Model,
    patch_size: int | tuple[int, int],
    interpolation: str | None = None,
    patch_interpolation: str | None = None,
) -> keras.Model:
    """Copies a model and its weights for patches of another size, on images of the same size.

    Smaller patches make more tokens, with which a FlexiViT (arXiv 2212.08013) is more accurate but
    slower. Other Vision Transformers lose accuracy unless they are trained further.
    `vit_keras.support.interpolation.resample_patch_kernel` resamples the patch kernel, and position
    embeddings are interpolated as in `with_image_size`. All other weights are copied.

    Args:
        model: A functional model of this package.
        patch_size: Pixels, an int or (height, width).
        interpolation: The rule for position embeddings, a key of
            `vit_keras.support.interpolation.INTERPOLATIONS`. None uses `model.resizing.positions`.
        patch_interpolation: The rule for resizing patches. None uses `model.resizing.patches`.

    Returns:
        A model with the preprocessing and the class names of `model`.

    Raises:
        ValueError: If the model is a hybrid or a ResNet, whose patches are not cut from the image;
            if it outputs maps; if `patch_size` does not divide the image size; or if a rule is
            unknown.

    Example:
        >>> faster = with_patch_size(model, 30)  # of a FlexiViT for 240 pixels
        >>> patch_grid(faster)
        (8, 8)
    """
    rules = resizing_of(model).replaced(interpolation, patch_interpolation)
    surgery.check_cuts_images(model)
    copy = _resized(model, rules, patch_size=pair(patch_size, "patch_size"))
    shapes = [[x.shape for x in a_model.outputs if len(x.shape) == 4] for a_model in (model, copy)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            "A model that outputs maps has layers for one patch stride. Change the patch size of "
            "the Vision Transformer first, and build the model with maps from the result. "
            f"Received: {model.name!r}, whose maps {shapes[0]} would become {shapes[1]}"
        )
    return copy


def _resized(
    model: keras.Model,
    rules: Resizing,
    image_size: tuple[int, int] | None = None,
    patch_size: tuple[int, int] | None = None,
) -> keras.Model:
    inside = surgery.backbones(model)
    if inside and model not in inside.values():
        raise ValueError(
            "Only the backbone itself can be resized. Add the layers around it afterward. "
            f"Received: model {model.name!r}. Pass {', '.join(inside)}"
        )
    model, images = _prepared(model, image_size or model.input_shape[1:3])
    embedding: list[PatchEmbedding] = []  # the copy's, called before layers that use its grid

    def clone(layer):
        config = layer.get_config()
        if isinstance(layer, PatchEmbedding):
            config["patch_size"] = patch_size or config["patch_size"]
            if task_of(model).kind != "masks":
                config["crop"] |= rules.crop_to_patches(images.shape[1:3], config["patch_size"])
            embedding.append(type(layer).from_config(config))
            return embedding[0]
        if config.get("grid") is not None:
            config["grid"] = embedding[0].grid(embedding[0].input.shape[1:3])
        is_relative = config.get("position_embedding") == "relative"
        if is_relative and config["grid"] != surgery.patch_grid(model):
            raise ValueError(
                "Positions 'relative' belong to offsets in the sequence, so they fit one grid and "
                "cannot be resized; 'rope2d' and added embeddings can. Received: a grid of "
                f"{surgery.patch_grid(model)} patches, to become {config['grid']}"
            )
        return type(layer).from_config(config)

    copy = keras.models.clone_model(model, input_tensors=images, clone_function=clone)
    grids = [surgery.patch_grid(x) for x in (model, copy)] if embedding else [None, None]
    for old, new in zip(model.layers, copy.layers, strict=True):
        pairs = zip(new.weights, old.get_weights(), strict=True)
        new.set_weights([_resized_weight(new, v.path, w, grids, rules) for v, w in pairs])
    return _described(copy, model)


def _prepared(model, image_size):
    """Returns the model with its adapters merged, and the input for its copy."""
    refuse_quantized(model, "A copy for images or patches of another size")
    shape = (*image_size, model.input_shape[-1])
    images = keras.Input(shape, dtype=model.input.dtype, name=model.input.name)
    return merge_lora(model) if lora_layers(model) else model, images


def _described(copy, model):
    """Copies a model's description to its copy for images of another size."""
    copy_description(copy, model)
    if isinstance(copy, ImageModel) and copy.architecture is not None:
        size = tuple(copy.input_shape[1:3])
        copy.architecture = dataclasses.replace(copy.architecture, image_size=size)
    return copy


def check_any_size(model: keras.Model) -> None:
    """Raises ValueError for a model with layers that are made for one grid of patches."""
    surgery.check_cuts_images(model)
    surgery.refuse_fixed_grids(model, "Images of any size", DYNAMIC)


def _of_any_size(model, interpolation):
    check_any_size(model)
    model, images = _prepared(model, (None, None))

    def copy_of(layer):
        crop = {"crop": True} if isinstance(layer, PatchEmbedding) else {}
        return type(layer).from_config({**layer.get_config(), **crop})

    copy = surgery.with_dynamic_positions(model, images, interpolation, DYNAMIC, copy_of)
    copy.set_weights(model.get_weights())
    return _described(copy, model)


def _resized_weight(layer, path, weight, grids, rules):
    """A weight of a layer on the new grid, or with the layer's patch size."""
    (old, new), name = grids, path.rpartition("/")[2]
    if path.endswith(RELATIVE_TABLE):
        return resizers.resize_relative_table(weight, old, new, rules.biases or rules.positions)
    if isinstance(layer, AddPositionEmbs):
        return resizers.resize_position_embeddings(weight, old, new, rules.positions)
    if isinstance(layer, AddPositionEmbs2D) and name in AXES:
        return resizers.resize_axis_embeddings(weight, new[AXES[name]], rules.positions)
    if isinstance(layer, PatchEmbedding) and name == "kernel":
        return resizers.resample_patch_kernel(weight, layer.patch_size, rules.patches)
    return weight


AXES = {"y_embedding": 0, "x_embedding": 1}  # of a grid
DYNAMIC = (AddPositionEmbs, AddPositionEmbs2D)
