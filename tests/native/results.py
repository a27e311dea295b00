"""Outputs and gradients of models and of their native objects, on the current backend."""

import keras
import numpy as np

from tests.helpers import to_numpy
from vit_keras import native
from vit_keras.native.tensors import flat
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats import google, timm


def channels_first(images):
    """A torch tensor `(B, C, H, W)` of images `(B, H, W, C)`."""
    import torch

    return torch.from_numpy(images).permute(0, 3, 1, 2)


def of_model(model, images, direction):
    """The output, and the gradient of its product with `direction` by variable path."""
    output, gradients = MODELS[keras.backend.backend()](model, images, direction)
    paths = [variable.path for variable in model.trainable_variables]
    return to_numpy(output), dict(zip(paths, map(to_numpy, gradients)))


def _model_on_torch(model, images, direction):
    output = model(images)
    (output * keras.ops.convert_to_tensor(direction)).sum().backward()
    return output.detach(), [variable.value.grad for variable in model.trainable_variables]


def _model_on_jax(model, images, direction):
    import jax

    def loss(values):
        output, _ = model.stateless_call(values, [], images, training=False)
        return (output * direction).sum(), output

    values = [variable.value for variable in model.trainable_variables]
    gradients, output = jax.jit(jax.grad(loss, has_aux=True))(values)
    return output, gradients


def _model_on_tensorflow(model, images, direction):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        output = model(images)
        loss = tf.reduce_sum(output * direction)
    return output, tape.gradient(loss, [variable.value for variable in model.trainable_variables])


MODELS = {
    "torch": _model_on_torch,
    "jax": _model_on_jax,
    "tensorflow": _model_on_tensorflow,
}


def of_native(model, images, direction):
    """The same of the native object, with gradients by the names of its parameters."""
    return NATIVE[keras.backend.backend()](model, images, direction)


def _torch(model, images, direction):
    import torch

    module = native.to_torch(model)
    output = module(channels_first(images))
    (output * torch.from_numpy(direction)).sum().backward()
    gradients = {name: x.grad.numpy() for name, x in module.named_parameters()}
    return output.detach().numpy(), gradients


def _jax(model, images, direction):
    import jax

    apply, params = native.to_jax(model)

    def loss(params):
        output = apply(params, images)
        return (output * direction).sum(), output

    gradients, output = jax.jit(jax.grad(loss, has_aux=True))(params)
    return np.asarray(output), {name: np.asarray(x) for name, x in flat(gradients).items()}


def _tensorflow(model, images, direction):
    import tensorflow as tf

    module = native.to_tensorflow(model)
    with tf.GradientTape() as tape:
        output = module(images)
        loss = tf.reduce_sum(output * direction)
    variables = flat(module.params)
    gradients = tape.gradient(loss, variables)
    return output.numpy(), {n: tf.convert_to_tensor(x).numpy() for n, x in gradients.items()}


NATIVE = {"torch": _torch, "jax": _jax, "tensorflow": _tensorflow}


def by_native_names(model, gradients):
    """The gradients of a model's variables under the names of its native object's parameters."""
    arch = VisionTransformerArchitecture.from_model(model)
    if keras.backend.backend() != "torch":
        links = google.links(arch)
    else:
        links = timm.links(arch)
        if arch.options.position_cover == "class":  # the token and its position are one there
            table = gradients["posembed_input/pos_embedding"].copy()
            table[:, 0] = 0
            gradients = {**gradients, "posembed_input/pos_embedding": table}
    named = {}
    for link in links:
        named |= zip(link.theirs, link.write(*(gradients[path] for path in link.ours)))
    return named
