"""A functional model that carries its preprocessing and the names of its classes."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from vit_keras.keras_internals import is_jax_state, is_torch_optimizer
from vit_keras.models.input_shapes import check_images


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """The way from a picture's pixels to a model's input.

    The defaults are the published ViT code's, which gives inputs in [-1, 1].

    Attributes:
        mean: Subtracted from pixels in [0, 1]: one value, or one for each channel.
        std: Divides the difference: one value, or one for each channel.
        interpolation: The method of the resize, "bilinear" or "bicubic".
        antialias: Whether the resize averages the pixels that it skips.
        crop_fraction: The side of a central crop as a fraction of the picture's shorter side. None
            resizes the whole picture to the model's size, whatever its shape.

    Example:
        >>> Preprocessing().normalize(np.array([0.0, 127.5, 255.0]))
        array([-1.,  0.,  1.])
    """

    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    interpolation: str = "bilinear"
    antialias: bool = False
    crop_fraction: float | None = None

    def normalize(self, pixels):
        """Turns float pixels `(..., C)` in [0, 255] into the model's input, `(..., C)`."""
        mean, std = (255 * np.asarray(v, "float32") for v in (self.mean, self.std))
        return (pixels - mean) / std

    def rescaling(self) -> tuple[list[float], list[float]]:
        """Returns the normalization as the `scale` and `offset` of `keras.layers.Rescaling`."""
        scale = [1 / (255 * std) for std in self.std]
        return scale, [-mean / std for mean, std in zip(self.mean, self.std)]


@keras.saving.register_keras_serializable(package="vit_keras")
class ImageModel(keras.Model):
    """A functional `keras.Model` that carries its preprocessing and its class names.

    Both are saved in its `.keras` files. The constructors of this package return such models.

    Attributes:
        preprocessing: A `Preprocessing`.
        class_names: Names of the classes in the order of the logits, or None.

    Example:
        >>> model.class_names = ["cat", "dog"]
        >>> model.save("model.keras")
        >>> keras.saving.load_model("model.keras").class_names
        ['cat', 'dog']
    """

    preprocessing = Preprocessing()
    class_names: Sequence[str] | None = None

    def __setattr__(self, name, value):
        if is_jax_state(name):  # set at every step; Keras would search it for layers, for 2 ms
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def __call__(self, *args, **kwargs):
        check_images(self, args[0] if args else kwargs.get("inputs"))
        return super().__call__(*args, **kwargs)

    def stateless_call(self, trainable_variables, non_trainable_variables, *args, **kwargs):
        check_images(self, args[0] if args else kwargs.get("inputs"))
        return super().stateless_call(trainable_variables, non_trainable_variables, *args, **kwargs)

    # Steps are compiled, where TensorFlow generalizes the sizes that it has seen, and an error on
    # JAX leaves the model without weights. So these three look before the first step.
    def fit(self, x=None, *args, **kwargs):
        check_images(self, x)
        return super().fit(x, *args, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        check_images(self, x)
        return super().evaluate(x, *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        check_images(self, x)
        return super().predict(x, *args, **kwargs)

    def make_train_function(self, force=False):
        """Builds the optimizer first; otherwise TensorFlow would trace the first step twice."""
        optimizer, strategy = self.optimizer, getattr(self, "distribute_strategy", None)
        if optimizer is not None and not optimizer.built:
            with strategy.scope() if strategy else contextlib.nullcontext():
                optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def get_config(self):
        preprocessing = dataclasses.asdict(self.preprocessing)
        names = None if self.class_names is None else list(self.class_names)
        return {**super().get_config(), "preprocessing": preprocessing, "class_names": names}

    def get_compile_config(self):
        return _portable(super().get_compile_config())

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        preprocessing, names = config.pop("preprocessing"), config.pop("class_names")
        model = super().from_config(config, custom_objects=custom_objects)
        fields: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in preprocessing.items()
        }
        model.preprocessing = Preprocessing(**fields)
        model.class_names = names
        for layer in model.layers:
            if not layer.trainable:  # Keras restores this for a layer's weights, not its sublayers'
                for weight in layer.weights:
                    weight.trainable = False
        return model


def _portable(config):
    """Returns a compile config that names public optimizers.

    On torch, Keras saves each of its own optimizers as a class of that backend, which no other
    backend can train with. The optimizers of `vit_keras.training` are the same class everywhere.
    """
    if not isinstance(config, dict):
        return config
    config = {key: _portable(value) for key, value in config.items()}
    if is_torch_optimizer(config.get("module")):
        config |= {"module": "keras.optimizers", "registered_name": None}
    return config


def copy_description(model: keras.Model, source: keras.Model) -> keras.Model:
    """Copies the preprocessing and the class names of `source` to `model`.

    Args:
        model: The model that is changed in place.
        source: The model to copy from.

    Returns:
        `model`. A model that is no `ImageModel` is returned as it is.

    Example:
        >>> model.class_names = ["cat", "dog"]
        >>> classifier = ImageModel(model.input, keras.layers.Softmax()(model.output))
        >>> copy_description(classifier, model).class_names
        ['cat', 'dog']
    """
    if isinstance(source, ImageModel) and isinstance(model, ImageModel):
        model.preprocessing, model.class_names = source.preprocessing, source.class_names
    return model


def preprocessing_of(model: keras.Model) -> Preprocessing:
    """Returns the preprocessing that a model carries.

    Args:
        model: Any Keras model.

    Returns:
        A `Preprocessing`. A model that carries none gets the published code's.

    Example:
        >>> preprocessing_of(vit_keras.applications.ViTTi16()).mean
        (0.5,)
    """
    return getattr(model, "preprocessing", ImageModel.preprocessing)


def class_names_of(model: keras.Model) -> list[str]:
    """Returns the names of a model's classes, in the order of the logits.

    Args:
        model: A Keras model with one output `(B, classes)`.

    Returns:
        The names that the model carries, or the numbers "0", "1" and so on where it carries none.

    Example:
        >>> class_names_of(vit_keras.applications.ViTTi16(classes=3))
        ['0', '1', '2']
    """
    names = getattr(model, "class_names", None)
    return list(names) if names else [str(i) for i in range(model.output_shape[-1])]


def check_class_names(class_names: Sequence[str], num_classes: int) -> tuple[str, ...]:
    """Checks that there is one name for each class.

    Args:
        class_names: The names, in the order of the logits.
        num_classes: The number of classes.

    Returns:
        The names as a tuple.

    Raises:
        ValueError: There are more or fewer names than classes, or `class_names` is one string.

    Example:
        >>> check_class_names(["cat", "dog"], num_classes=2)
        ('cat', 'dog')
    """
    if isinstance(class_names, str):
        raise ValueError(
            f"`class_names` must be a sequence of names. Received: class_names={class_names!r}"
        )
    if len(class_names) != num_classes:
        raise ValueError(
            "`class_names` must have one name for each class. "
            f"Received: {len(class_names)} names for {num_classes} classes"
        )
    return tuple(class_names)


def ends_in_softmax(model: keras.Model) -> bool:
    """Tells whether a model ends in a softmax, as those of `vit_keras.applications` do.

    Args:
        model: A functional model.

    Returns:
        True if the activation of the last layer is a softmax.

    Example:
        >>> ends_in_softmax(vit_keras.applications.ViTTi16())
        True
    """
    return getattr(model.layers[-1], "activation", None) is keras.activations.softmax
