"""Models that learn from a teacher, another model for the same images (arXiv 1503.02531)."""

import math

import keras
import numpy as np
from keras import ops

from vit_keras.layers.base import LayerArguments
from vit_keras.models.common import dense
from vit_keras.models.description import ends_in_softmax, has_layer, preprocessing_of, task_of
from vit_keras.models.image_model import JoinedModel
from vit_keras.models.surgery import patch_grid
from vit_keras.support.checks import listed

TEACHER = "teacher"
RESIZING = {"antialias": True, "data_format": "channels_last", "dtype": "float32"}


def distillation_model(
    student: keras.Model, teacher: keras.Model, config, seed: int | None = None
) -> keras.Model:
    """Builds the model that trains a student on its teacher's outputs for the same images.

    The model prepares the images for the teacher: it normalizes them with the teacher's values,
    resizes them to the teacher's size, and repeats a gray image over the teacher's channels. The
    teacher computes as at inference, and its weights do not train. The model shares the student's
    layers, so training it trains them.

    Args:
        student: A model of this package: a classifier or, for features, also one without a head.
        teacher: A model of this package. Its weights become untrainable.
        config: A `vit_keras.config.DistillConfig`.
        seed: The seed of the new layers; None draws one.

    Returns:
        A `keras.Model` that maps the student's images to `(B, 3, K)`: the student's logits for the
        labels, its logits for the teacher, and the teacher's logits. The first two differ only for
        the classifier "distilled". For features, it maps images to `(B, 2, T, D)`: the student's
        features, projected linearly to the teacher's width, and the teacher's. T is 1, plus the
        number of the student's patches with `config.patches`.

    Raises:
        ValueError: If the two models have different classes, if the teacher takes another kind of
            image, or if a model lacks the features.

    Example:
        ```python
        model = distillation_model(student, teacher, DistillConfig("runs/large", kind="features"))
        model.compile("adam", vit_keras.training.FeatureDistance())
        model.fit(images, targets)  # the targets are not read
        ```
    """
    if config.kind == "features":
        ours, theirs = (_features(model, config.patches) for model in (student, teacher))
        layers = map(LayerArguments(seed, None), ("projection", "patch_projection"))
        triples = zip(ours, theirs, layers)
        ours = [dense(s, t.shape[-1], layer, dtype="float32") for s, t, layer in triples]
    else:
        _check_classes(student, teacher)
        heads = ["head", "head_dist"] if has_layer(student, "head_dist") else ["head"] * 2
        ours = [student.get_layer(name).output for name in heads]
        theirs = _logits(teacher)
    images = _as_the_teacher_sees(student.input, student, teacher)
    theirs = _Teacher(keras.Model(teacher.input, theirs))(images)
    if config.kind == "features":
        if config.patches and patch_grid(student) != patch_grid(teacher):
            x = ops.reshape(theirs[1], (-1, *patch_grid(teacher), theirs[1].shape[-1]))
            resize = keras.layers.Resizing(*patch_grid(student), **RESIZING)
            theirs[1] = ops.reshape(resize(x), (-1, *ours[1].shape[1:]))
        ours, theirs = ([ops.concatenate(x, axis=1)] for x in (ours, theirs))
    outputs = ops.stack([*ours, *theirs], axis=1)
    model = JoinedModel(student.input, outputs, name=f"{student.name}_{config.kind}")
    model.task = task_of(student)
    return model


def teacher_variables(model: keras.Model) -> list[keras.Variable]:
    """Returns the variables of the teacher in a model.

    Args:
        model: A model from `distillation_model`, or another model, which has no teacher.

    Returns:
        A list, which is empty without a teacher.

    Example:
        >>> teacher_variables(from_variant("Ti/16", image_size=32, num_classes=10))
        []
    """
    return [v for layer in model.layers if layer.name == TEACHER for v in layer.variables]


def copy_student(trained: keras.Model, student: keras.Model) -> keras.Model:
    """Copies the student's weights from a trained distillation model.

    Args:
        trained: A model from `distillation_model`.
        student: A model with the student's architecture, changed in place.

    Returns:
        `student`.

    Example:
        ```python
        model = copy_student(trained, from_variant("Ti/16", image_size=64, num_classes=None))
        ```
    """
    for layer in student.layers:
        if layer.weights:
            layer.set_weights(trained.get_layer(layer.name).get_weights())
    return student


class _Teacher(keras.layers.Layer):
    """A model that computes as at inference, even while the model around it trains.

    A functional model passes `training` to the models inside it, but not through a layer that does
    not take this argument.
    """

    def __init__(self, model):
        super().__init__(name=TEACHER, dtype="float32", trainable=False)
        self.model = model
        model.trainable = False

    def call(self, images):
        outputs = keras.tree.flatten(self.model(images, training=False))
        return [ops.stop_gradient(ops.cast(x, "float32")) for x in outputs]


def _check_classes(student, teacher):
    ours, theirs = (getattr(model, "class_names", None) for model in (student, teacher))
    outputs = student.output_shape[-1], teacher.output_shape[-1]
    kind = task_of(teacher).kind
    is_other = outputs[0] != outputs[1] or (ours and theirs and list(ours) != list(theirs))
    if kind != "classes" or is_other:
        raise ValueError(
            "A teacher for soft or hard labels must predict the data set's classes, in the same "
            f"order. Received: {_named(outputs[0], ours)} in the data set, "
            f"{_named(outputs[1], theirs)} in a teacher of {kind}. Fine-tune the teacher on this "
            "data set, or use distill.kind=features"
        )


def _named(count, names):
    return f"{count} classes ({listed(names)})" if names else f"{count} classes"


def _logits(teacher):
    """The teacher's logits, without a softmax at the end."""
    if not ends_in_softmax(teacher):
        return [teacher.output]
    last = teacher.layers[-1]
    last.activation = keras.activations.linear
    return [last(last.input)]


def _as_the_teacher_sees(x, student, teacher):
    """Converts the student's images to the teacher's: values, channels and size."""
    ours, theirs = preprocessing_of(student), preprocessing_of(teacher)
    float32 = {"dtype": "float32"}
    channels = teacher.input_shape[-1]
    if student.input_shape[-1] == 1 != channels:
        x = keras.layers.Concatenate(**float32, name="to_color")([x] * channels)
    mean, std = np.array(ours.mean), np.array(theirs.std)
    scale, offset = np.array(ours.std) / std, (mean - theirs.mean) / std
    if np.any(scale != 1) or np.any(offset != 0):
        scale, offset = (np.broadcast_to(v, channels).tolist() for v in (scale, offset))
        x = keras.layers.Rescaling(scale, offset, **float32, name="to_teacher_values")(x)
    size = teacher.input_shape[1:3]
    if None not in size and size != tuple(student.input_shape[1:3]):
        named = {"name": "to_teacher_size", **RESIZING}
        x = keras.layers.Resizing(*size, theirs.interpolation, **named)(x)
    return x


def _features(model, patches):
    """The pooled features `(B, 1, D)` and, if `patches`, normalized ones of each patch `(B, N, D)`.

    Pooled features are the head's input, or the output if there is no head.
    """
    x = model.get_layer("head").input if has_layer(model, "head") else model.output
    if len(x.shape) != 2:
        raise ValueError(
            "Features are the input of the layer 'head', or the output (B, D) of a model without "
            f"one. Received: model {model.name!r}, whose output is {tuple(model.output.shape)}"
        )
    features = [ops.expand_dims(x, axis=1)]
    if not patches:
        return features
    x = model.get_layer("encoder_norm").output
    if len(x.shape) != 3:
        raise ValueError(
            "`distill.patches` needs models whose `encoder_norm` normalizes each token, unlike "
            f"that of the classifier 'gap_norm'. Received: model {model.name!r}"
        )
    return [*features, x[:, x.shape[1] - math.prod(patch_grid(model)) :]]
