# %% [markdown]
# # Your own training loop
#
# `model.fit` is a loop over batches: a loss, its gradients, an update. This notebook writes this
# loop in JAX, PyTorch and TensorFlow, with the same model and the same optimizer. The losses equal
# those that `fit` reports, step by step. Start from these loops, and change what you need.

# %%
# %pip install -q "vit-keras[data,weights,jax]"
import os

import vit_keras

os.environ.setdefault("KERAS_BACKEND", "jax")  # or "tensorflow", or "torch"

import keras
import numpy as np
from sklearn.datasets import load_digits

from vit_keras import models, weights

SMALL = bool(os.environ.get("SMALL"))  # a test runs the example with a small model, in seconds
SIDE, STEPS, BATCH, RATE = (32, 6, 16, 1e-2) if SMALL else (224, 100, 32, 1e-4)

# %% [markdown]
# ## Pictures, a model and an optimizer
#
# scikit-learn's handwritten digits stand in for your pictures. `batches` yields the same batches
# whenever it is called. The model returns logits, `(B, 10)`.

# %%
digits = load_digits()
pixels = digits.images.repeat(SIDE // 8, axis=1).repeat(SIDE // 8, axis=2)  # (1797, SIDE, SIDE)
pictures = np.repeat(pixels[..., None] / 8 - 1, 3, axis=-1).astype("float32")  # in [-1, 1]


def batches():
    """Yields pictures, `(B, SIDE, SIDE, 3)`, and labels, `(B,)`, of each step."""
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        rows = rng.choice(len(pictures), BATCH, replace=False)
        yield pictures[rows], digits.target[rows].astype("int32")


def new_model():
    if SMALL:
        return models.from_variant("mu/16", image_size=SIDE, num_classes=10, seed=0)
    file = weights.resolve("Ti/16", "augreg-imagenet21k")  # downloaded once, and verified
    return vit_keras.open(file, image_size=SIDE, num_classes=10)


def new_optimizer():
    return keras.optimizers.AdamW(RATE, weight_decay=0.01, global_clipnorm=1.0)


loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

# %% [markdown]
# ## JAX
# A JAX function has no side effects, so the values of all variables go in and come out:
# `stateless_call` computes the model, and `stateless_apply` the update. The values that are not
# trained include the seeds of dropout. At the end, the values are assigned to the model.


# %%
def jax_loop(model, optimizer):
    import jax

    def compute_loss(trained, others, images, labels):
        logits, others = model.stateless_call(trained, others, images, training=True)
        return loss_of(labels, logits), others

    @jax.jit
    def step(state, images, labels):
        trained, others, slots = state
        gradient = jax.value_and_grad(compute_loss, has_aux=True)
        (loss, others), gradients = gradient(trained, others, images, labels)
        trained, slots = optimizer.stateless_apply(slots, gradients, trained)
        return loss, (trained, others, slots)

    optimizer.build(model.trainable_variables)
    variables = model.trainable_variables, model.non_trainable_variables, optimizer.variables
    state, losses = tuple([v.value for v in group] for group in variables), []
    for images, labels in batches():
        loss, state = step(state, images, labels)
        losses.append(float(loss))
    for group, values in zip(variables, state):
        for variable, value in zip(group, values):
            variable.assign(value)
    return losses


# %% [markdown]
# ## PyTorch
#
# The model is a `torch.nn.Module`, and each variable's `value` is one of its parameters. An
# optimizer of `torch.optim` works, too: pass it `model.parameters()`.


# %%
def torch_loop(model, optimizer):
    import torch

    losses = []
    for images, labels in batches():
        loss = loss_of(labels, model(images, training=True))
        model.zero_grad()
        loss.backward()
        gradients = [variable.value.grad for variable in model.trainable_variables]
        with torch.no_grad():
            optimizer.apply(gradients, model.trainable_variables)
        losses.append(loss.item())
    return losses


# %% [markdown]
# ## TensorFlow
#
# The tape records what it needs for the gradients, and `tf.function` makes a graph of the step.


# %%
def tensorflow_loop(model, optimizer):
    import tensorflow as tf

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    optimizer.build(model.trainable_variables)
    return [float(step(images, labels)) for images, labels in batches()]


# %% [markdown]
# ## The same losses as `fit`
#
# An epoch of one step makes `fit` report the loss of each step instead of their mean.

# %%
LOOPS = {"jax": jax_loop, "torch": torch_loop, "tensorflow": tensorflow_loop}
model = new_model()
losses = LOOPS[keras.backend.backend()](model, new_optimizer())

reference = new_model()
reference.compile(new_optimizer(), loss_of)
history = reference.fit(
    batches(), epochs=STEPS, steps_per_epoch=1, shuffle=False, verbose=0
).history
print("own loop:", np.round(losses[:6], 4))
print("fit:     ", np.round(history["loss"][:6], 4))

# %% [markdown]
# `model` is now trained like `reference`: save it with `model.save("model.keras")`, and export it
# with `vit-keras export`. `vit-keras train` adds what your own loop lacks: evaluations, checkpoints
# that continue to the same bits, several devices, and averages of the weights.
