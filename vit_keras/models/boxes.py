"""Heads that find objects, and models made of any backbone and such a head."""

import dataclasses
import functools

import keras

from vit_keras.layers import DropClassToken, PatchBoxes, PatchDropout, RegisterTokens
from vit_keras.layers.base import LayerArguments
from vit_keras.layers.common import LayerNormalization, check_choice, check_positive
from vit_keras.models import description
from vit_keras.models.architectures import VisionTransformerArchitecture, with_boxes
from vit_keras.models.common import dense, image_source, variable_dtype
from vit_keras.models.image_model import ImageModel
from vit_keras.models.surgery import backbone_of, blocks_of, patch_grid
from vit_keras.support.tasks import Task

DEPTH = 3  # dense layers of an MLP
STEM = "posembed_dropout"  # the layer after which tokens are complete


def add_boxes(x, kind: str, num_classes: int, place, grid, norm, layer) -> dict:
    """Adds the heads of boxes and classes to tokens.

    Args:
        x: The normalized tokens `(B, T + N, D)`.
        kind: `ViTOptions.boxes`.
        num_classes: K; for kinds with texts, the width E of the text embeddings.
        place: The number of tokens before those that the heads read, and the number that they read;
            None for all.
        grid: The rows and columns of patches.
        norm: A function that takes a name and returns the normalization with this name.
        layer: A function that takes a name and returns the arguments of the layer with this name.

    Returns:
        The outputs of the model, by name.
    """
    of_texts = kind.startswith("texts")
    read = "detection_tokens" if kind == "tokens" else "patch_tokens"
    tokens, x = x, DropClassToken(*place, **layer.unseeded(read))(x)
    if of_texts:
        token = DropClassToken(0, keep=1, **layer.unseeded("class_token"))(tokens)
        x = norm("head_norm")(keras.layers.Multiply(**layer.unseeded("merged"))([x, token]))
    mlp = functools.partial(_mlp, x, "gelu" if of_texts else "relu", layer)
    named = {"dtype": variable_dtype(layer.dtype), "name": "boxes"}
    place_boxes = PatchBoxes(grid, **named)
    if kind == "tokens":
        place_boxes = keras.layers.Activation("sigmoid", **named)
    boxes = place_boxes(mlp("head_boxes", 4))
    if not of_texts:
        return {"logits": mlp("head", num_classes + 1), "boxes": boxes}
    unit = keras.layers.UnitNormalization(**named | {"name": "embeddings"})
    above_zero = keras.layers.Rescaling(1.0, 1.0, **named | {"name": "scale"})
    outputs = {
        "embeddings": unit(_dense(x, "head", num_classes, layer)),
        "shift": _dense(x, "head_shift", 1, layer),
        "scale": above_zero(_dense(x, "head_scale", 1, layer, "elu")),
        "boxes": boxes,
    }
    if kind == "texts_objectness":
        flat = keras.layers.Reshape((-1,), **named | {"name": "objectness"})
        outputs["objectness"] = flat(mlp("head_objectness", 1))
    return outputs


def _mlp(x, activation, layer, name, units):
    width = x.shape[-1]
    for i in range(DEPTH - 1):
        x = dense(x, width, layer(f"{name}_mlp_{i}"), activation)
    return _dense(x, name, units, layer)


def _dense(x, name, units, layer, activation=None):
    """A layer that computes in the type of its variables; the classifier starts at zero."""
    changes = {"kernel_initializer": "zeros"} if name == "head" else {}
    dtype = variable_dtype(layer.dtype)
    return dense(x, units, layer(name), activation, dtype=dtype, **changes)


def detector(
    model: keras.Model,
    num_classes: int,
    head: str = "tokens",
    num_tokens: int = 100,
    seed: int | None = None,
    name: str | None = None,
) -> ImageModel:
    """Builds a model that finds objects from a backbone.

    The model maps images `(B, H, W, C)` to a dictionary: "logits" `(B, T, num_classes + 1)`, whose
    last column means no object, and "boxes" `(B, T, 4)`: center x, center y, width and height as
    fractions of the image's sides, in 0..1. Both come from MLPs of three layers on T normalized
    tokens (YOLOS, arXiv 2106.00666). The layer `head` of the classes starts at zero.

    Args:
        model: A backbone of this package with a known image size, such as a `VisionTransformer`
            with or without a head. Layers after its last block, except the norm, are left out, and
            so is `PatchDropout`.
        num_classes: The number of classes.
        head: "tokens" adds learned detection tokens, which the MLPs read, before the blocks, as in
            YOLOS. "patches" reads the T patches, whose boxes start at their places, as in OWL-ViT
            (arXiv 2205.06230).
        num_tokens: T for "tokens", the largest number of objects in an image.
        seed: The seed of the new layers. Equal seeds give equal weights on every backend.
        name: The name of the model; None keeps the name of `model`.

    Returns:
        An `ImageModel` with copies of the backbone's weights. `with_image_size` adapts it to
        another image size.

    Raises:
        ValueError: If the model has no encoder blocks or an argument is invalid; or with "tokens",
            if learned positions belong to all tokens of every block, as in BEiT.

    Example:
        >>> backbone = from_variant("S/16", image_size=(512, 864), num_classes=None)
        >>> outputs = detector(backbone, num_classes=80).output
        >>> outputs["logits"].shape, outputs["boxes"].shape
        ((None, 100, 81), (None, 100, 4))
    """
    check_choice(head, ("tokens", "patches"), "head")
    check_positive(num_classes=num_classes, num_tokens=num_tokens)
    name, model = name or model.name, backbone_of(model)
    grid, block = patch_grid(model), blocks_of(model)[-1].layer
    place = (description.count_prefix(model), num_tokens if head == "tokens" else None)
    layer = LayerArguments(seed, block.dtype_policy)
    x = _trunk(model, block, place, layer)
    norm = lambda name: LayerNormalization(epsilon=block.layer_norm_epsilon, **layer.unseeded(name))
    outputs = add_boxes(x, head, num_classes, place, grid, norm, layer)
    made = description.copy_description(ImageModel(image_source(x), outputs, name=name), model)
    made.class_names = None
    if isinstance(made.architecture, VisionTransformerArchitecture):
        made.architecture = with_boxes(made.architecture, head, num_classes, num_tokens)
    return made


def with_joined_boxes(model: keras.Model) -> ImageModel:
    """Joins the outputs of a detector, so that one loss reads both.

    Args:
        model: A model that returns "logits" `(B, T, K + 1)` and "boxes" `(B, T, 4)`, such as one
            from `models.detector`.

    Returns:
        A model that shares the weights of `model`, with the output `(B, T, K + 1 + 4)`. Its task is
        boxes, and its preprocessing has no central crop, so it sees whole pictures.

    Example:
        >>> base = VisionTransformer(32, 16, 24, 2, 3, 48, num_classes=4)
        >>> model = detector(base, num_classes=2, num_tokens=5)
        >>> with_joined_boxes(model).output_shape
        (None, 5, 7)
    """
    outputs = [model.output["logits"], model.output["boxes"]]
    joined = keras.layers.Concatenate(dtype="float32", name="joined")(outputs)
    made = description.with_outputs(model, joined)
    preprocessing = description.preprocessing_of(model)
    made.preprocessing = dataclasses.replace(preprocessing, crop_fraction=None)
    made.task = Task("boxes")
    return made


def with_one_output(model: keras.Model) -> keras.Model:
    """Joins the outputs of a detector with its own classes; returns other models unchanged.

    An OWL-ViT is unchanged, since its classes are texts.

    Example:
        >>> base = VisionTransformer(32, 16, 24, 2, 3, 48, num_classes=4)
        >>> with_one_output(detector(base, num_classes=2, num_tokens=5)).output_shape
        (None, 5, 7)
    """
    outputs = {*model.output} if isinstance(model.output, dict) else set()
    is_detector = outputs == {"logits", "boxes"} and not description.has_layer(model, "head_texts")
    return with_joined_boxes(model) if is_detector else model


def _trunk(model, block, place, layer):
    """Copies a backbone up to its last block and norm, with new tokens; returns `(B, N, D)`."""
    norms = [other for other in model.layers if other.name == "encoder_norm"]
    trunk = keras.Model(model.inputs, block.output)
    before, count = place
    names = [other.name for other in trunk.layers]
    name = "registers" if "registers" not in names else "detection_registers"

    def call(other, *args, **kwargs):
        x = args[0] if isinstance(other, PatchDropout) else other(*args, **kwargs)
        if other.name != STEM or count is None:
            return x
        return RegisterTokens(count, before, **layer(name))(x)

    copy = keras.models.clone_model(trunk, call_function=call)
    x = copy.output
    for norm in norms:
        x = type(norm).from_config(norm.get_config())(x)
    whole = keras.Model(copy.inputs, x)
    for old in [*trunk.layers, *norms]:
        if not isinstance(old, PatchDropout):
            whole.get_layer(old.name).set_weights(old.get_weights())
    return x
