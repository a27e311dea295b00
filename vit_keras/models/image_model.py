"""A functional model that carries its preprocessing and what its outputs mean."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from vit_keras.annotated import check_types, fits, short
from vit_keras.keras_internals import is_jax_state, is_torch_optimizer
from vit_keras.layers import kernels
from vit_keras.models.input_shapes import check_images
from vit_keras.resizing import Resizing
from vit_keras.tasks import CLASSES, Task

METHODS = ("bilinear", "bicubic", "nearest")  # of the resize; the last one is for masks
ROUNDINGS = ("none", "torchvision", "transformers")


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """The way from a picture's pixels to a model's input.

    The defaults are for new models: inputs in [-1, 1], as in the published ViT code, and Pillow's
    resize, which other projects have as well. The resize of published weights is their own.

    Attributes:
        mean: Subtracted from pixels in [0, 1]: one value, or one for each channel.
        std: Divides the difference: one value, or one for each channel.
        interpolation: The method of the resize, "bilinear" or "bicubic".
        antialias: Whether the resize averages the pixels that it would skip in a larger picture.
        crop_fraction: The side of a central crop as a fraction of the picture's shorter side. None
            resizes the whole picture to the model's size, whatever its shape.
        rounding: What becomes whole besides sizes. "torchvision" resizes as its transforms, timm's
            and OpenCLIP's do with Pillow: levels are rounded after each axis, the shorter side
            before a crop is rounded down, and the longer side follows from it. "transformers" also
            rounds the corner of a crop down, where the others round half a pixel to the even side.
            "none" rounds no levels, and the longer side follows from the exact shorter side.

    Raises:
        ValueError: If a field has another value.

    Example:
        >>> Preprocessing().normalize(np.array([0.0, 127.5, 255.0]))
        array([-1.,  0.,  1.])
    """

    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    interpolation: str = "bilinear"
    antialias: bool = True
    crop_fraction: float | None = None
    rounding: str = "torchvision"

    def __post_init__(self):
        check_types(self)
        if not self.mean or not self.std or 0 in self.std or not _are_colors(self.mean, self.std):
            raise ValueError(
                "`mean` and `std` must hold numbers below 1e6, and `std` none that is 0. "
                f"Received: mean={short(self.mean)}, std={short(self.std)}"
            )
        for name, choices in (("interpolation", METHODS), ("rounding", ROUNDINGS)):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"`{name}` must be one of {', '.join(map(repr, choices))}. "
                    f"Received: {getattr(self, name)!r}"
                )
        if self.crop_fraction is not None and not 0 < self.crop_fraction <= 1:
            raise ValueError(
                "`crop_fraction` must be above 0 and at most 1, or None. "
                f"Received: {self.crop_fraction!r}"
            )

    @property
    def rounds_levels(self) -> bool:
        """Whether a resize rounds pixels to whole levels from 0 to 255, as Pillow does."""
        return self.rounding != "none" and self.interpolation != "nearest"

    def normalize(self, pixels):
        """Turns float pixels `(..., C)` in [0, 255] into the model's input, `(..., C)`."""
        mean, std = (255 * np.asarray(v, "float32") for v in (self.mean, self.std))
        return (pixels - mean) / std

    def side_before_crop(self, side: int) -> int | None:
        """Returns the whole pixels that `side` is a crop of, rounded down; None without a crop."""
        return None if self.crop_fraction is None else int(side / self.crop_fraction + 1e-6)

    def rescaling(self) -> tuple[list[float], list[float]]:
        """Returns the normalization as the `scale` and `offset` of `keras.layers.Rescaling`."""
        scale = [1 / (255 * std) for std in self.std]
        return scale, [-mean / std for mean, std in zip(self.mean, self.std)]


def _are_colors(*values) -> bool:
    return all(abs(number) < 1e6 for several in values for number in several)


# The resize of the original code, `vit_jax`: of its files, and of files that do not say their own.
PUBLISHED_PREPROCESSING = Preprocessing(antialias=False, rounding="none")


@kernels.dispatch("call_chain")
def call_chain(model, x, training):
    """What a functional model computes, by shorter calls of its layers than Keras'.

    Returns:
        The outputs, or None where Keras has to call the layers.
    """
    return None


@keras.saving.register_keras_serializable(package="vit_keras")
class ImageModel(keras.Model):
    """A functional `keras.Model` that carries its preprocessing and what its outputs mean.

    All four are saved in its `.keras` files. The constructors of this package return such models.

    Attributes:
        preprocessing: A `Preprocessing`.
        class_names: Names of the classes, labels or numbers in the order of the outputs, or None.
        task: A `Task`: whether the outputs are classes, of which one is right, or other things.
        resizing: A `vit_keras.resizing.Resizing`: the rules by which the publisher of the weights
            adapts them to other sizes of images and patches.

    Example:
        >>> model.class_names = ["cat", "dog"]
        >>> model.save("model.keras")
        >>> keras.saving.load_model("model.keras").class_names
        ['cat', 'dog']
    """

    preprocessing = Preprocessing()
    class_names: Sequence[str] | None = None
    task = CLASSES
    resizing = Resizing()

    def __setattr__(self, name, value):
        if is_jax_state(name):  # set at every step; Keras would search it for layers, for 2 ms
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def __call__(self, *args, **kwargs):
        images = args[0] if args else kwargs.get("inputs")
        check_images(self, images)
        if len(args) == 1 and kwargs.keys() <= {"training"}:
            outputs = call_chain(self, images, kwargs.get("training"))
            if outputs is not None:
                return outputs
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
        description = {
            "preprocessing": dataclasses.asdict(self.preprocessing),
            "class_names": None if self.class_names is None else list(self.class_names),
            "task": dataclasses.asdict(self.task),
            "resizing": dataclasses.asdict(self.resizing),
        }
        return {**super().get_config(), **description}

    def get_compile_config(self):
        return _portable(super().get_compile_config())

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        preprocessing, names = config.pop("preprocessing"), config.pop("class_names")
        # Files of earlier versions have neither of these.
        task, resizing = config.pop("task", {}), config.pop("resizing", {})
        if not fits(names, tuple[str, ...] | None):
            raise ValueError(f"`class_names` must be a list of texts. Received: {short(names)}")
        model = super().from_config(config, custom_objects=custom_objects)
        model.preprocessing = preprocessing_from(preprocessing)
        model.class_names = names
        model.task, model.resizing = Task(**with_tuples(task)), Resizing(**resizing)
        for layer in model.layers:
            if not layer.trainable:  # Keras restores this for a layer's weights, not its sublayers'
                for weight in layer.weights:
                    weight.trainable = False
        return model


# Keras' old `.h5` files name a model by its class alone.
keras.saving.get_custom_objects()["ImageModel"] = ImageModel


def preprocessing_from(fields: Mapping[str, Any]) -> Preprocessing:
    """The `Preprocessing` whose fields a file holds; those that it lacks are the published ones."""
    return dataclasses.replace(PUBLISHED_PREPROCESSING, **with_tuples(fields))


def with_tuples(fields) -> dict[str, Any]:
    """The fields of a frozen dataclass, whose tuples JSON turns into lists."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}


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
