"""Models as a `tf.Module` with the parameters of the published Flax code."""

import keras
import numpy as np
import tensorflow as tf

from vit_keras.native.computation import Computation
from vit_keras.native.design import Design, design_of, with_plain_kernels
from vit_keras.native.operations import Operations
from vit_keras.native.tensors import assign_variables, flat, nested, read_variables
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats import google

OPERATIONS = Operations(
    convert=lambda x, dtype: tf.cast(x, dtype),
    batch=lambda x: x.shape[0] or tf.shape(x)[0],
    reshape=tf.reshape,
    transpose=tf.transpose,
    concatenate=tf.concat,
    broadcast_to=tf.broadcast_to,
    matmul=tf.matmul,
    mean=lambda x, axis: tf.reduce_mean(x, axis, keepdims=True),
    rsqrt=tf.math.rsqrt,
    cos=tf.cos,
    sin=tf.sin,
    tanh=tf.tanh,
    sigmoid=tf.sigmoid,
    where=tf.where,
    gelus={
        "exact": lambda x: tf.nn.gelu(x, approximate=False),
        "tanh": lambda x: tf.nn.gelu(x, approximate=True),
        "quick": lambda x: x * tf.sigmoid(1.702 * x),
    },
    activations={"linear": tf.identity, "softmax": tf.nn.softmax, "sigmoid": tf.sigmoid},
    take=tf.gather,
    smallest=lambda x, count: tf.sort(tf.argsort(x)[:, :count]),
    gather=lambda x, places: tf.gather(x, places, batch_dims=1),
)


class NativeVisionTransformer(tf.Module):
    """A Vision Transformer of TensorFlow alone, which `to_tensorflow` makes.

    Args:
        design: What the model computes.
        tensors: `{name: array}` of all parameters.

    Attributes:
        params: The variables, in the tree of the published Flax code.
    """

    def __init__(self, design: Design, tensors: dict[str, np.ndarray]):
        super().__init__(name="vision_transformer")
        self._compute = Computation(design, OPERATIONS)
        self.params = nested({name: tf.Variable(x, name=name) for name, x in tensors.items()})

    def __call__(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the model's output for images `(B, H, W, C)`."""
        return self._compute(self.params, images, tf.random.uniform if training else None)


def to_tensorflow(model: keras.Model) -> NativeVisionTransformer:
    """Makes a `tf.Module` from a Vision Transformer.

    Its attribute `params` holds the variables in the tree and the layouts of the published Flax
    code.

    Args:
        model: A model that `VisionTransformer` built, on any backend. Low-rank adapters are merged.

    Returns:
        A module, of which `module(images, training=False)` takes images `(B, H, W, C)` and returns
        the model's output. With `training`, it drops as the model does. It may be wrapped by
        `tf.function` and saved by `tf.saved_model.save`.

    Raises:
        ValueError: The model has an option that the module does not compute, which the message
            names.

    Example:
        ```python
        module = vit_keras.native.to_tensorflow(model)
        with tf.GradientTape() as tape:
            loss = compute_loss(module(images, training=True), labels)
        gradients = tape.gradient(loss, module.trainable_variables)
        ```
    """
    model = with_plain_kernels(model)
    design = design_of(model)
    return NativeVisionTransformer(design, read_variables(model, google.links(design.arch)))


def from_tensorflow(module: NativeVisionTransformer, model: keras.Model) -> keras.Model:
    """Puts the variables of a module of `to_tensorflow` back into a model.

    Args:
        module: The module.
        model: The model, which is changed in place.

    Returns:
        `model`.

    Raises:
        ValueError: Variables are missing, unknown or of another shape. The model is unchanged.

    Example:
        ```python
        module = vit_keras.native.to_tensorflow(model)
        module.params["head"]["bias"].assign_add([0.1, 0.0])
        vit_keras.native.from_tensorflow(module, model)
        ```
    """
    arch = VisionTransformerArchitecture.from_model(model)
    tensors = {name: x.numpy() for name, x in flat(module.params).items()}
    assign_variables(model, google.links(arch), tensors)
    return model
