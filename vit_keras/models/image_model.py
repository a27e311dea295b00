"""A functional model that knows how its images are prepared and what its classes are called."""

import contextlib
import dataclasses

import keras
import numpy as np

from vit_keras.keras_internals import is_jax_state, is_torch_optimizer


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How pixels become a model's input; the defaults are the published ViT code's.

    Attributes:
        mean: subtracted from pixels in [0, 1], one value or one a channel.
        std: divides what is left; 0.5 and 0.5 give [-1, 1].
        interpolation: of the resize, "bilinear" or "bicubic".
        antialias: whether the resize averages the pixels that it skips.
        crop_fraction: None to resize to the model's size whatever the shape; else the side of a
            central crop, as a fraction of the shorter side of the picture.
    """

    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    interpolation: str = "bilinear"
    antialias: bool = False
    crop_fraction: float | None = None

    def normalise(self, pixels):
        """Pixels in [0, 255], `(..., C)` float, as the model's input."""
        mean, std = (255 * np.asarray(v, "float32") for v in (self.mean, self.std))
        return (pixels - mean) / std

    def rescaling(self) -> tuple[list[float], list[float]]:
        """The same as one scale and one offset a channel, the arguments of Keras' `Rescaling`."""
        scale = [1 / (255 * std) for std in self.std]
        return scale, [-mean / std for mean, std in zip(self.mean, self.std)]


@keras.saving.register_keras_serializable(package="vit_keras")
class ImageModel(keras.Model):
    """A functional `keras.Model` whose saved files carry `preprocessing` and `class_names`.

    Attributes:
        preprocessing: a `Preprocessing`.
        class_names: names of the classes in the order of the logits, or None.
    """

    preprocessing = Preprocessing()
    class_names = None

    def __setattr__(self, name, value):
        if is_jax_state(name):  # fit sets it every step; Keras would look for layers in it, 2 ms
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def make_train_function(self, force=False):
        """Builds the optimiser before its first step, which TensorFlow would else trace twice."""
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
        model.preprocessing = Preprocessing(
            **{k: tuple(v) if isinstance(v, list) else v for k, v in preprocessing.items()}
        )
        model.class_names = names
        for layer in model.layers:
            if not layer.trainable:  # Keras tells a loaded layer's own weights, not its parts'
                for weight in layer.weights:
                    weight.trainable = False
        return model


def _portable(config):
    """A compile config that names public optimisers.

    On torch Keras saves each of its own optimisers as a class of that backend, which no other can
    train with. Those of `vit_keras.training` are the same class everywhere.
    """
    if not isinstance(config, dict):
        return config
    config = {key: _portable(value) for key, value in config.items()}
    if is_torch_optimizer(config.get("module")):
        config |= {"module": "keras.optimizers", "registered_name": None}
    return config


def copy_description(model: keras.Model, source: keras.Model) -> keras.Model:
    """Gives `model` what `source` knows of its images and classes, and returns it."""
    if isinstance(source, ImageModel) and isinstance(model, ImageModel):
        model.preprocessing, model.class_names = source.preprocessing, source.class_names
    return model


def preprocessing_of(model: keras.Model) -> Preprocessing:
    """How the model's images are prepared; the published code's way where it carries nothing."""
    return getattr(model, "preprocessing", ImageModel.preprocessing)


def class_names_of(model: keras.Model) -> list[str]:
    """The names of the classes that the model carries; their numbers where it carries none."""
    names = getattr(model, "class_names", None)
    return list(names) if names else [str(i) for i in range(model.output_shape[-1])]


def ends_in_softmax(model: keras.Model) -> bool:
    """Whether the last layer's activation is a softmax, as a Keras application's is."""
    return getattr(model.layers[-1], "activation", None) is keras.activations.softmax
