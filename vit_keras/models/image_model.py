"""A functional model that carries its preprocessing and what its outputs mean."""

import contextlib
import dataclasses
from collections.abc import Sequence

import keras
import numpy as np

from vit_keras.layers import backends
from vit_keras.models.compile_checks import check_compile
from vit_keras.models.input_shapes import check_images, check_inputs
from vit_keras.support.annotated import fits, short
from vit_keras.support.keras_internals import is_jax_state, is_torch_optimizer
from vit_keras.support.preprocessing import Preprocessing, with_tuples
from vit_keras.support.resizing import Resizing
from vit_keras.support.tasks import CLASSES, Task


@backends.dispatch("call_in_step")
def call_in_step(model, x, training):
    """What a model computes in a step that replays it; None where Keras has to call the layers."""
    return None


@backends.dispatch("make_step")
def make_step(model, name, make, force):
    """Makes the attribute `name` of a model, a step function, by Keras' method `make`."""
    return make(force)


predict_batches = backends.lookup("predict_batches")


def predict_array(model, images, batch_size: int | None):
    """What `model.predict` returns for an array of images, without Keras' loop around each batch.

    Keras makes a loader, an iterator and callbacks for each call, and more for each batch. For a
    small image this takes a twentieth of the model's time on torch and a fifth on JAX. On
    TensorFlow it takes twice the model's time.

    Returns:
        The outputs, or None where Keras has to predict: `images` are no float32 array, or a
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
class ImageModel(keras.Model):
    """A functional `keras.Model` that carries its preprocessing and what its outputs mean.

    All four are saved in its `.keras` files, and `copy_description` copies them to a clone that
    `keras.models.clone_model` made. The constructors of this package return such models.

    Attributes:
        preprocessing: A `Preprocessing`, whose mean and std get as many values as the model's
            images have channels, by `Preprocessing.for_channels`.
        class_names: Names of the classes, labels or numbers in the order of the outputs, or None.
        task: A `Task`: whether the outputs are classes, of which one is right, or other things.
        resizing: A `vit_keras.support.resizing.Resizing`: the rules by which the publisher of the
            weights adapts them to other sizes of images and patches.

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
            return
        if name == "preprocessing" and (channels := self.inputs[0].shape[-1]):
            value = value.for_channels(channels)
        super().__setattr__(name, value)

    def __call__(self, *args, **kwargs):
        images = args[0] if args else kwargs.get("inputs")
        check_images(self, images)
        if len(args) == 1 and kwargs.keys() == {"training"}:
            outputs = call_in_step(self, images, kwargs["training"])
            if outputs is not None:
                return outputs
        return super().__call__(*args, **kwargs)

    def stateless_call(self, trainable_variables, non_trainable_variables, *args, **kwargs):
        check_images(self, args[0] if args else kwargs.get("inputs"))
        return super().stateless_call(trainable_variables, non_trainable_variables, *args, **kwargs)

    # Steps are compiled, where TensorFlow generalizes the sizes that it has seen, and an error on
    # JAX leaves the model without weights. So these three look before the first step.
    def fit(self, x=None, *args, **kwargs):
        return super().fit(check_inputs(self, x, least=1), *args, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        return super().evaluate(check_inputs(self, x, least=1), *args, **kwargs)

    def predict_on_batch(self, x):
        return super().predict_on_batch(check_inputs(self, x, warns=False))

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        x = check_inputs(self, x)
        if isinstance(x, np.ndarray) and not len(x):  # which Keras cannot predict
            one = self.predict(np.zeros((1, *x.shape[1:]), "float32"), verbose=0)
            return keras.tree.map_structure(lambda outputs: outputs[:0], one)
        if verbose == 0 and steps is None and callbacks is None:
            outputs = predict_array(self, x, batch_size)
            if outputs is not None:
                return outputs
        return super().predict(x, batch_size, verbose, steps, callbacks)

    def compile(self, *args, **kwargs):
        """As in Keras, but refuses what reads probabilities from logits, or the reverse."""
        check_compile(self, *args, **kwargs)
        super().compile(*args, **kwargs)

    def compile_from_config(self, config):
        """As in Keras, which calls no `compile` that a class overrides."""
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
        task, resizing = config.pop("task"), config.pop("resizing")
        if not fits(names, tuple[str, ...] | None):
            raise ValueError(f"`class_names` must be a list of texts. Received: {short(names)}")
        model = super().from_config(config, custom_objects=custom_objects)
        model.preprocessing = Preprocessing(**with_tuples(preprocessing))
        model.class_names = names
        model.task, model.resizing = Task(**with_tuples(task)), Resizing(**resizing)
        for layer in model.layers:
            if not layer.trainable:  # Keras restores this for a layer's weights, not its sublayers'
                for weight in layer.weights:
                    weight.trainable = False
        return model


# Keras' old `.h5` files name a model by its class alone.
keras.saving.get_custom_objects()["ImageModel"] = ImageModel


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
