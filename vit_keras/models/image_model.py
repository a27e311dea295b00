"""A functional model that carries its preprocessing and the meaning of its outputs."""

import contextlib
import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from vit_keras.layers import backends
from vit_keras.models import architectures
from vit_keras.support import keras_internals
from vit_keras.support.keras_internals import JAX_STATE, operation_of, sublayers
from vit_keras.support.preprocessing import Preprocessing, Resizing, as_inputs
from vit_keras.support.tasks import CLASSES

if keras.backend.backend() == "openvino":
    keras_internals.compute_in_float32()


def check_inputs(model: Any, images: Any, least: int = 0, warns: bool = True) -> Any:
    """Checks the input of `fit`, `evaluate` or `predict`, and turns a list into an array.

    Args:
        model: An `ImageModel`. If it has several inputs, only Keras checks them.
        images: A tensor, an array, a `tf.data.Dataset`, or a list of pictures `(H, W, C)`. Other
            types are not checked. As in Keras, a grayscale model also takes images `(B, H, W)`.
        least: The smallest number of images allowed.
        warns: As in `as_inputs`.

    Raises:
        ValueError: As in `as_inputs`, if the model takes images of another shape, or if there are
            too few images.
    """
    if len(model.inputs) != 1:
        return images
    images = as_inputs(images, model.preprocessing, warns)
    spec = getattr(images, "element_spec", None)
    shape = getattr(images if spec is None else keras.tree.flatten(spec)[0], "shape", None)
    if shape is None or getattr(shape, "rank", 0) is None:  # a data set may not know its shape
        return images
    expected, received = model.inputs[0].shape, tuple(shape)
    if len(received) == len(expected) - 1 and expected[-1] == 1:
        received = (*received, 1)  # Keras adds the axis
    if len(received) == len(expected) + 1 and received[-1] == 1:
        received = received[:-1]  # Keras drops it
    is_same = all(None in pair or pair[0] == pair[1] for pair in zip(expected, received))
    if len(received) != len(expected) or not is_same:
        raise ValueError(
            f"This model takes images of shape {expected}. Received: {tuple(shape)}. "
            "`vit_keras.models.with_image_size` makes a model for another size"
        )
    if received[0] is not None and received[0] < least:
        raise ValueError("Training and evaluation need at least one image. Received: none")
    return images


# Losses and metrics of Keras and of this package that read only probabilities, and those that read
# only logits. Their names are in lower case and without underscores.
OF_PROBABILITIES = "kldivergence", "categoricalgeneralizedcrossentropy", "dice", "tversky"
OF_LOGITS = "pixelcrossentropy", "rareclasscrossentropy", "sigmoidcrossentropy"
# For these, TensorFlow itself finds the logits before a softmax or sigmoid.
UNWRAPPED = "binarycrossentropy", "categoricalcrossentropy", "sparsecategoricalcrossentropy"
PROBABILITIES = {"softmax", "sigmoid", "hard_sigmoid", "sparse_sigmoid", "sparsemax"}
PACKAGES = ("keras.", "vit_keras.")


def check_compile(model, arguments: Mapping[str, Any]) -> None:
    """Checks that losses and metrics suit the model's outputs.

    Layers and losses from other packages are not checked.

    Args:
        model: A functional model.
        arguments: The arguments of `keras.Model.compile`, by name.

    Raises:
        ValueError: If a loss or metric expects probabilities but the model returns logits, or vice
            versa.
    """
    outputs = getattr(model, "outputs", None) or []
    kinds = {_gives(output) for output in outputs}
    gives = "logits" if kinds == {"logits"} else "probabilities"
    if not outputs or not (gives == "logits" or kinds <= PROBABILITIES):
        return
    for argument in ("loss", "metrics", "weighted_metrics"):
        for one in keras.tree.flatten(arguments.get(argument)):
            reads = _reads(_named(one, argument, outputs))
            if reads in (None, gives):
                continue
            name = repr(one) if isinstance(one, str) else type(one).__name__
            name = getattr(getattr(one, "func", one), "__name__", name)
            raise ValueError(
                f"`{argument}` must read {gives}, which model {model.name!r} gives. Received: "
                f"{name}, which reads {reads}. Set its `from_logits` or threshold, or build the "
                'model with `classifier_activation` "softmax" for probabilities, or None for logits'
            )


def _named(one, argument, outputs):
    """Returns the loss or metric that Keras finds for a name; anything else as it is."""
    if not isinstance(one, str):
        return one
    if one.lower() in ("accuracy", "acc"):
        return keras.metrics.BinaryAccuracy() if outputs[0].shape[-1] == 1 else None
    if one.lower() in ("crossentropy", "ce"):
        return keras.losses.categorical_crossentropy
    return (keras.losses if argument == "loss" else keras.metrics).get(one)


def _reads(one) -> str | None:
    """Returns whether a loss or metric reads "logits" or "probabilities"; None if unknown."""
    function = getattr(one, "func", one)  # of a partial
    is_function = inspect.isroutine(function)
    kind = function if is_function else type(one)
    if not str(kind.__module__).startswith(PACKAGES):
        return None
    name = kind.__name__.replace("_", "").lower()
    parameters = inspect.signature(one).parameters if is_function else {}
    config = {key: parameter.default for key, parameter in parameters.items()} or one.get_config()
    if name in OF_LOGITS or config.get("from_logits"):
        is_unwrapped = keras.backend.backend() == "tensorflow" and name in UNWRAPPED
        return None if is_unwrapped else "logits"
    if name in OF_PROBABILITIES or {"from_logits", "num_thresholds"} & config.keys():
        return "probabilities"
    levels = config.get("thresholds", config.get("threshold"))
    if levels is None and "thresholds" in config and not config.get("top_k"):
        levels = 0.5
    is_share = any(0 < level < 1 for level in keras.tree.flatten(levels) if level)
    return "probabilities" if is_share else None


def _gives(tensor) -> str:
    """A tensor's content: "logits", the activation of its probabilities, or another name."""
    operation = operation_of(tensor)
    last = getattr(operation, "activation", None) or operation
    name = getattr(last, "__name__", type(last).__name__).lower()
    if name in PROBABILITIES or not str(last.__module__).startswith(PACKAGES):
        return name
    is_model = isinstance(operation, keras.Model)
    if name == "inputlayer" or (getattr(operation, "weights", ()) and not is_model):
        return "logits"
    before = keras.tree.flatten(operation.outputs if is_model else operation.input)
    return max(map(_gives, before), key=lambda gives: gives != "logits")


@backends.dispatch("call_in_step")
def call_in_step(model, x, training):
    """A model's outputs in a step that replays it; None if Keras has to call the layers."""
    return None


@backends.dispatch("make_step")
def make_step(model, name, make, force):
    """Sets a model's attribute `name`, a step function, with Keras' method `make`."""
    return make(force)


predict_batches = backends.lookup("predict_batches")


def predict_array(model, images, batch_size: int | None):
    """The result of `model.predict` for an array of images, without Keras' loop around batches.

    Keras makes a loader, an iterator and callbacks for each call, and more for each batch. For a
    small image this adds a twentieth of the model's time on torch, a fifth on JAX, and twice the
    model's time on TensorFlow.

    Returns:
        The outputs, or None if Keras has to predict: `images` is not a float32 array, or a
        distribution over devices is set.
    """
    size = 32 if batch_size is None else batch_size
    is_plain = isinstance(images, np.ndarray) and images.dtype == np.float32
    if not is_plain or size < 1 or keras.distribution.distribution() is not None:
        return None
    batches = [images[start : start + size] for start in range(0, len(images), size)]
    outputs = predict_batches(model, batches) if predict_batches else None
    if outputs is None:
        return None
    to_numpy = keras.ops.convert_to_numpy
    join = lambda *arrays: np.concatenate([to_numpy(array) for array in arrays])
    return keras.tree.map_structure(join, *outputs)


@keras.saving.register_keras_serializable(package="vit_keras")
class JoinedModel(keras.Model):
    """A functional model that joins several models, whose variables may have the same paths."""

    def zero_grad(self, set_to_none=True):
        """On torch, clears all gradients; Keras clears only one of those with the same path."""
        for variable in self.trainable_variables:
            variable.value.grad = None


@keras.saving.register_keras_serializable(package="vit_keras")
class ImageModel(keras.Model):
    """A functional `keras.Model` that carries its preprocessing and the meaning of its outputs.

    All five attributes are saved in its `.keras` files. `copy_description` copies them to a clone
    from `keras.models.clone_model`. The constructors of this package return such models.

    Attributes:
        preprocessing: A `Preprocessing`. `Preprocessing.for_channels` gives its mean and std one
            value per channel of the model's images.
        class_names: The names of the classes, strings or numbers in the order of the outputs, or
            None.
        task: A `Task`: whether the outputs are classes, exactly one of which is right, or something
            else.
        resizing: A `vit_keras.support.preprocessing.Resizing`: the publisher's rules for adapting
            the weights to other image and patch sizes.
        architecture: The arguments of its constructor that determine the names, shapes and numerics
            of its weights, or None.

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
    architecture: architectures.Architecture | None = None

    def __setattr__(self, name, value):
        if name == JAX_STATE:  # Keras would search it for layers at every step, for 2 ms
            object.__setattr__(self, name, value)
            return
        if name == "preprocessing" and (channels := self.inputs[0].shape[-1]):
            value = value.for_channels(channels)
        super().__setattr__(name, value)

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and kwargs.keys() == {"training"}:
            outputs = call_in_step(self, args[0], kwargs["training"])
            if outputs is not None:
                return outputs
        return super().__call__(*args, **kwargs)

    # Inside compiled steps, TensorFlow generalizes sizes from earlier calls, and an error on JAX
    # leaves the model without weights. So these three methods check before the first step.
    def fit(self, x=None, *args, **kwargs):
        return super().fit(check_inputs(self, x, least=1), *args, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        return super().evaluate(check_inputs(self, x, least=1), *args, **kwargs)

    def predict_on_batch(self, x):
        return super().predict_on_batch(check_inputs(self, x, warns=False))

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        x = check_inputs(self, x)
        if isinstance(x, np.ndarray) and not len(x):  # Keras cannot predict it
            one = self.predict(np.zeros((1, *x.shape[1:]), "float32"), verbose=0)
            return keras.tree.map_structure(lambda outputs: outputs[:0], one)
        if verbose == 0 and steps is None and callbacks is None:
            outputs = predict_array(self, x, batch_size)
            if outputs is not None:
                return outputs
        return super().predict(x, batch_size, verbose, steps, callbacks)

    def compile(self, *args, **kwargs):
        """As in Keras, but refuses losses and metrics that confuse logits and probabilities."""
        bound = inspect.signature(super().compile).bind(*args, **kwargs)
        check_compile(self, bound.arguments)
        super().compile(*args, **kwargs)

    def compile_from_config(self, config):
        """As in Keras, which skips this for a class that overrides `compile`."""
        super().compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def make_test_function(self, force=False):
        return make_step(self, "test_function", super().make_test_function, force)

    def make_predict_function(self, force=False):
        return make_step(self, "predict_function", super().make_predict_function, force)

    def make_train_function(self, force=False):
        """Builds the optimizer first; otherwise TensorFlow would trace the first step twice."""
        optimizer, strategy = self.optimizer, getattr(self, "distribute_strategy", None)
        if optimizer is not None and not optimizer.built:
            with strategy.scope() if strategy else contextlib.nullcontext():
                optimizer.build(self.trainable_variables)
        return make_step(self, "train_function", super().make_train_function, force)

    def get_config(self):
        architecture = architectures.architecture_of(self)
        description = {
            **{name: dataclasses.asdict(getattr(self, name)) for name in architectures.RECORDS},
            "class_names": None if self.class_names is None else list(self.class_names),
            "architecture": None if architecture is None else architecture.arguments,
        }
        layers = [layer for layer in sublayers(self) if layer.quantization_mode]
        quantized = {x.path: [x.quantization_mode, x.quantization_config] for x in layers}
        if quantized:  # Keras restores this for a model's layers, not for nested ones
            description["quantized"] = keras.saving.serialize_keras_object(quantized)
        return {**super().get_config(), **description}

    def get_compile_config(self):
        return _portable(super().get_compile_config())

    @classmethod
    def from_config(cls, config, custom_objects=None):
        fields = {*architectures.RECORDS, "class_names", "architecture", "quantized"}
        of_keras = {name: value for name, value in config.items() if name not in fields}
        model = super().from_config(of_keras, custom_objects=custom_objects)
        carried = {"class_names": config["class_names"], **architectures.records_in(config)}
        if config.get("architecture"):
            carried["architecture"] = architectures.of_arguments(config["architecture"])
        for name, value in carried.items():
            setattr(model, name, value)
        quantized = keras.saving.deserialize_keras_object(config.get("quantized", {}))
        whole = {layer.path for layer in sublayers(model) if not layer.quantization_mode}
        for path in quantized.keys() & whole:
            model.quantize(*quantized[path], filters=lambda x, path=path: x.path == path)
        for layer in model.layers:
            if not layer.trainable:  # Keras restores this for a layer's weights, not its sublayers'
                for weight in layer.weights:
                    weight.trainable = False
        return model


# Keras' old `.h5` files name a model only by its class.
keras.saving.get_custom_objects()["ImageModel"] = ImageModel


def _portable(config):
    """Returns a compile config that names public optimizers.

    On torch, Keras saves each of its own optimizers as a class of that backend, and no other
    backend can train with it. The optimizers of `vit_keras.training` are the same class everywhere.
    """
    if not isinstance(config, dict):
        return config
    config = {key: _portable(value) for key, value in config.items()}
    if keras_internals.is_torch_optimizer(config.get("module")):
        config |= {"module": "keras.optimizers", "registered_name": None}
    return config
