"""What a model carries besides its weights, read from any Keras model."""

import dataclasses

import keras

from vit_keras.layers import RegisterTokens
from vit_keras.models.image_model import ImageModel
from vit_keras.support.preprocessing import PUBLISHED_PREPROCESSING, Preprocessing, Resizing
from vit_keras.support.tasks import Task


def copy_description(model: keras.Model, source: keras.Model) -> keras.Model:
    """Copies preprocessing, class names, task, resizing rules and architecture to a model.

    Args:
        model: The model to change in place.
        source: The model to copy from.

    Returns:
        `model`. A model that is not an `ImageModel` is returned unchanged.

    Example:
        >>> model.class_names = ["cat", "dog"]
        >>> classifier = ImageModel(model.input, keras.layers.Softmax()(model.output))
        >>> copy_description(classifier, model).class_names
        ['cat', 'dog']
    """
    if isinstance(source, ImageModel) and isinstance(model, ImageModel):
        for name in ("preprocessing", "class_names", "task", "resizing", "architecture"):
            setattr(model, name, getattr(source, name))
    return model


def with_outputs(model: keras.Model, outputs, name: str | None = None, **changes) -> ImageModel:
    """Makes a model from a model's input and other outputs, with the same description and name.

    Args:
        model: A functional model.
        outputs: Tensors that are computed from its input.
        name: The new name; None keeps the name of `model`.
        **changes: What differs in the description, such as `class_names=None`.

    Returns:
        An `ImageModel` that shares the weights of `model`.

    Example:
        >>> model = vit_keras.applications.ViTTi16(classes=3, weights=None)
        >>> with_outputs(model, model.get_layer("head").input).output_shape
        (None, 192)
    """
    made = ImageModel(model.input, outputs, name=name or model.name)
    copy_description(made, model)
    for key, value in changes.items():
        setattr(made, key, value)
    return made


def uncropped(model: keras.Model) -> Preprocessing:
    """Returns a model's preprocessing without a central crop, so that it sees whole pictures."""
    return dataclasses.replace(preprocessing_of(model), crop_fraction=None)


def preprocessing_of(model: keras.Model) -> Preprocessing:
    """Returns the preprocessing that a model carries.

    Args:
        model: Any Keras model.

    Returns:
        A `Preprocessing`. A model without one gets the published code's.

    Example:
        >>> preprocessing_of(vit_keras.applications.ViTTi16()).mean
        (0.5,)
    """
    return getattr(model, "preprocessing", PUBLISHED_PREPROCESSING)


def resizing_of(model: keras.Model) -> Resizing:
    """Returns the rules for resizing a model's weights.

    Args:
        model: Any Keras model.

    Returns:
        A `vit_keras.support.preprocessing.Resizing`. A model without one gets the published code's.

    Example:
        >>> resizing_of(vit_keras.applications.ViTTi16()).positions
        'bilinear'
    """
    return getattr(model, "resizing", ImageModel.resizing)


def task_of(model: keras.Model) -> Task:
    """Returns the meaning of a model's outputs.

    Args:
        model: Any Keras model.

    Returns:
        A `Task`. For a model without one, the outputs are classes.

    Example:
        >>> task_of(vit_keras.applications.ViTTi16()).kind
        'classes'
    """
    return getattr(model, "task", ImageModel.task)


def class_names_of(model: keras.Model) -> list[str]:
    """Returns the names of a model's classes, in the order of the logits.

    Args:
        model: A Keras model with one output `(B, classes)`, or a detector, joined or not.

    Returns:
        The names that the model carries, or the numbers "0", "1" and so on if it carries none.

    Example:
        >>> class_names_of(vit_keras.applications.ViTTi16(classes=3))
        ['0', '1', '2']
    """
    names = getattr(model, "class_names", None)
    return list(names) if names else [str(i) for i in range(count_classes(model))]


def count_classes(model: keras.Model) -> int:
    """Returns the number of a model's classes; 0 for an OWL-ViT without texts.

    Example:
        >>> count_classes(vit_keras.applications.ViTTi16(classes=3))
        3
    """
    if not isinstance(model.output, dict):
        return model.output_shape[-1] - (1 + 4) * (task_of(model).kind == "boxes")
    if "logits" not in model.output:
        return 0
    names = [layer.name for layer in model.layers]
    return model.output["logits"].shape[-1] - ("head_texts" not in names)  # without "no object"


def ends_in_softmax(model: keras.Model) -> bool:
    """Tells whether a model ends in a softmax, as the models of `vit_keras.applications` do.

    Args:
        model: A functional model.

    Returns:
        True if the activation of the last layer is a softmax.

    Example:
        >>> ends_in_softmax(vit_keras.applications.ViTTi16())
        True
    """
    return getattr(model.layers[-1], "activation", None) is keras.activations.softmax


def has_layer(model: keras.Model, name: str) -> bool:
    """Tells whether a model has a layer of this name."""
    return any(layer.name == name for layer in model.layers)


def has_class_token(model: keras.Model) -> bool:
    """Tells whether the first token of a built model is a class token."""
    return has_layer(model, "cls")


def count_registers(model: keras.Model) -> int:
    """Returns the number of registers of a built model."""
    return sum(x.num_registers for x in model.layers if isinstance(x, RegisterTokens))


def count_prefix(model: keras.Model) -> int:
    """Returns the number of tokens before the patches of a built model."""
    return has_layer(model, "cls") + has_layer(model, "dist") + count_registers(model)
