"""Models as functions of JAX with the parameters of the published Flax code."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import keras

from vit_keras.native.computation import Computation
from vit_keras.native.design import design_of, with_plain_kernels
from vit_keras.native.operations import Operations
from vit_keras.native.tensors import assign_variables, flat, nested, read_variables
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats import google

OPERATIONS = Operations(
    convert=lambda x, dtype: jnp.asarray(x, dtype),
    batch=lambda x: x.shape[0],
    reshape=jnp.reshape,
    transpose=jnp.transpose,
    concatenate=jnp.concatenate,
    broadcast_to=jnp.broadcast_to,
    matmul=jnp.matmul,
    mean=lambda x, axis: jnp.mean(x, axis, keepdims=True),
    rsqrt=jax.lax.rsqrt,
    cos=jnp.cos,
    sin=jnp.sin,
    tanh=jnp.tanh,
    sigmoid=jax.nn.sigmoid,
    where=jnp.where,
    gelus={
        "exact": lambda x: jax.nn.gelu(x, approximate=False),
        "tanh": lambda x: jax.nn.gelu(x, approximate=True),
        "quick": lambda x: x * jax.nn.sigmoid(1.702 * x),
    },
    activations={"linear": lambda x: x, "softmax": jax.nn.softmax, "sigmoid": jax.nn.sigmoid},
    take=lambda table, index: jnp.take(table, index, axis=0),
    smallest=lambda x, count: jnp.sort(jnp.argsort(x)[:, :count]),
    gather=lambda x, places: jnp.take_along_axis(x, places[..., None], axis=1),
)


def to_jax(model: keras.Model) -> tuple[Callable[..., jax.Array], dict[str, Any]]:
    """Makes a pure function of JAX and its parameters from a Vision Transformer.

    The parameters have the names, the tree and the layouts of the published Flax code, such as
    `params["Transformer"]["encoderblock_0"]["LayerNorm_0"]["scale"]`.

    Args:
        model: A model that `VisionTransformer` built, on any backend. Low-rank adapters are merged.

    Returns:
        `apply` and `params`. `apply(params, images, key=None)` takes images `(B, H, W, C)` and
        returns the model's output; with a `key` of `jax.random` it is a training step, with
        dropout and stochastic depth. It computes in the type of the parameters. Nothing in it is
        compiled; it is a function for `jax.jit`, `jax.grad`, `jax.vmap` and `jax.pmap`.

    Raises:
        ValueError: The model has an option that the function does not compute, which the message
            names.

    Example:
        ```python
        apply, params = vit_keras.native.to_jax(model)
        logits = jax.jit(apply)(params, images)  # images (B, 224, 224, 3)
        ```
    """
    model = with_plain_kernels(model)
    compute = Computation(design := design_of(model), OPERATIONS)

    def apply(params, images, key=None):
        return compute(params, images, None if key is None else _uniform(key))

    tensors = read_variables(model, google.links(design.arch))
    return apply, nested({name: jnp.asarray(array) for name, array in tensors.items()})


def _uniform(key):
    """Returns a function that draws random numbers `shape`, other ones at each call."""
    keys = [key]

    def draw(shape):
        keys[0], now = jax.random.split(keys[0])
        return jax.random.uniform(now, shape)

    return draw


def from_jax(params: Mapping[str, Any], model: keras.Model) -> keras.Model:
    """Puts parameters of `to_jax` back into a model, after a training in JAX.

    Args:
        params: The parameters, for one device.
        model: The model, which is changed in place.

    Returns:
        `model`.

    Raises:
        ValueError: Parameters are missing, unknown or of another shape. The model is unchanged.

    Example:
        ```python
        apply, params = vit_keras.native.to_jax(model)
        gradients = jax.grad(lambda p: loss(apply(p, images, key), labels))(params)
        params = jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients)
        vit_keras.native.from_jax(params, model)
        ```
    """
    arch = VisionTransformerArchitecture.from_model(model)
    assign_variables(model, google.links(arch), flat(params))
    return model
