"""`predict` of images in memory on JAX."""

import weakref

import jax

from vit_keras.layers.kernels.array_batches import batches_of, joined

# A model's compiled step, and Keras' function, which is another one once the model has changed.
STEPS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def predict_array(model, images, batch_size: int | None):
    """What `model.predict` returns for an array, or None where Keras has to predict."""
    batches = batches_of(images, batch_size)
    if not batches or model.run_eagerly or not model.jit_compile:
        return None
    model.jax_state_sync()
    step, weights = _step(model), (model.trainable_variables, model.non_trainable_variables)
    state = tuple([variable.value for variable in variables] for variables in weights)
    return joined([step(state, batch) for batch in batches])


def _step(model):
    model.make_predict_function()
    function, step = STEPS.get(model, (lambda: None, None))
    if function() is not model.predict_function:
        step = jax.jit(_without_state(weakref.ref(model)))
        STEPS[model] = weakref.ref(model.predict_function), step
    return step


def _without_state(model):
    """The outputs of a model's step alone, since Keras' function returns all weights as well."""
    return lambda state, batch: model().predict_step(state, (batch,))[0]
