"""Private names of Keras' layers and of the graphs that they make."""

import contextlib
import io

import keras

from vit_keras.keras_internals.version import check_keras


class FixedSeed(keras.random.SeedGenerator):
    """A seed generator that gives one seed, drawn before, and has no state to advance."""

    _initial_seed = 0  # Keras' dropout on torch takes the global generator where this is None

    def __init__(self, seed):
        check_keras()
        self.seed = seed

    def next(self, ordered=True):
        return self.seed


def operation_of(tensor: keras.KerasTensor) -> keras.Operation:
    """The layer or operation of a functional model that made `tensor`."""
    check_keras()
    return tensor._keras_history.operation


def first_input_of(tensor: keras.KerasTensor) -> keras.KerasTensor:
    """The first input of the call that made `tensor`."""
    operation, node_index = operation_of(tensor), tensor._keras_history.node_index
    return operation._inbound_nodes[node_index].input_tensors[0]


def count_uses(operation: keras.Operation) -> int:
    """The number of calls, in all models, that take the outputs of `operation`."""
    check_keras()
    return len(operation._outbound_nodes)


def sublayers(layer: keras.Layer) -> list[keras.Layer]:
    """The layer and the layers in it, at any depth."""
    check_keras()
    return list(layer._flatten_layers())


def take_own_policy(layer: keras.layers.Layer) -> None:
    """Replaces the map of dtype policies that a sublayer got from its parent by its own policy."""
    check_keras()
    policy = layer._dtype_policy
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        layer._dtype_policy = policy[layer.path]


def stored_kernel(layer: keras.layers.Layer):
    """The kernel variable of a Keras dense layer, to which `layer.kernel` adds LoRA's product."""
    check_keras()
    return layer._kernel


def weights_in_memory(model: keras.Model) -> io.BytesIO:
    """What `model.save_weights` writes into a `.weights.h5` file.

    HDF5 does not survive a full disk: a write that fails as the file closes ends the process by a
    segmentation fault (https://github.com/h5py/h5py/issues/914). Memory does not fill like that.
    """
    check_keras()
    from keras.src.saving import saving_lib

    file = io.BytesIO()
    store = saving_lib.H5IOStore(file, mode="w")
    saving_lib._save_state(model, store, None, inner_path="", visited_saveables=set())
    store.close()
    return file


@contextlib.contextmanager
def unlocked(layer: keras.layers.Layer):
    """While open, a built layer takes more weights.

    Relies on the layer's tracker refusing attributes with variables while it is locked.
    """
    check_keras()
    layer._tracker.unlock()
    try:
        yield
    finally:
        layer._tracker.lock()
