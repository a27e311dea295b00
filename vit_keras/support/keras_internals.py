"""All uses of Keras' private names, with the behavior that each relies on.

Keras may change such names in any minor version. Therefore this module and `pyproject.toml` limit
the supported versions, which the import of this module checks.
"""

import contextlib
import functools
import io
import types
from collections.abc import Callable, Iterable

import keras

SUPPORTED = "3.15"  # the minor version whose private names are used here
REQUIREMENT = "keras>=3.15,<3.16"


def check_keras() -> None:
    """Checks that Keras has the private names that this module uses.

    Raises:
        ImportError: If the installed version is not supported.
    """
    if keras.__version__.split(".")[:2] != SUPPORTED.split("."):
        raise ImportError(
            f"vit_keras uses private names of Keras {SUPPORTED}, which other versions may not "
            f'have. Received: Keras {keras.__version__}. Run: pip install "{REQUIREMENT}"'
        )


check_keras()


class FixedSeed(keras.random.SeedGenerator):
    """A seed generator that gives one seed, drawn earlier, and has no state to advance."""

    _initial_seed = 0  # if this is None, Keras' dropout on torch uses the global generator

    def __init__(self, seed):
        self.seed = seed

    def next(self, ordered=True):
        return self.seed


def operation_of(tensor: keras.KerasTensor) -> keras.Operation:
    """The layer or operation of a functional model that made `tensor`."""
    return tensor._keras_history.operation


def first_input_of(tensor: keras.KerasTensor) -> keras.KerasTensor:
    """The first input of the call that made `tensor`."""
    operation, node_index = operation_of(tensor), tensor._keras_history.node_index
    return operation._inbound_nodes[node_index].input_tensors[0]


def input_shapes(model: keras.Model, operation: keras.Operation) -> list[tuple]:
    """The shape of the first input of each call of an operation in a functional model.

    A shared layer has calls outside the model too. Relies on `_nodes_by_depth`.
    """
    calls = {id(node) for depth in model._nodes_by_depth.values() for node in depth}
    inside = [node for node in operation._inbound_nodes if id(node) in calls]
    return [tuple(node.input_tensors[0].shape) for node in inside]


def chain_of(model: keras.Model) -> list[keras.Operation]:
    """The operations of a functional model in which each takes the previous operation's result.

    The list is empty for other models, and if an operation was called with other arguments. Relies
    on `_nodes_by_depth`, and on nodes holding the `arguments` and `outputs` of a call.
    """
    tensors, chain = list(model.inputs), []
    nodes = [node for depth in model._nodes_by_depth.values() for node in depth]
    for node in reversed(nodes):  # from the input to the output
        if node.is_input:
            continue
        takes, *others = node.arguments.args
        is_next = len(tensors) == 1 and takes is tensors[0] and not others
        if not is_next or node.arguments.kwargs not in ({}, {"training": False}):
            return []
        tensors = node.outputs
        chain.append(node.operation)
    return chain if len(tensors) == 1 and tensors[0] is model.output else []


def sublayers(layer: keras.Layer) -> list[keras.Layer]:
    """The layer and the layers in it, at any depth."""
    return list(layer._flatten_layers())


def autocast(dtype: str) -> contextlib.AbstractContextManager:
    """While open, variables are read in a dtype, as in a call of a layer with this dtype."""
    from keras.src.backend import AutocastScope

    return AutocastScope(dtype)


def policies_of(layers: Iterable[keras.Layer]) -> list:
    """The dtype policies of layers, or the maps that hold them; 25 times as fast as the property.

    Relies on `_dtype_policy`.
    """
    return [vars(layer)["_dtype_policy"] for layer in layers]


def stored_kernel(layer: keras.layers.Layer):
    """The kernel variable of a Keras dense layer; `layer.kernel` adds LoRA's product to it."""
    return layer._kernel


def tensors_of(variables: Iterable[keras.Variable]) -> list:
    """The tensors of torch variables, in their own types whatever scope is open.

    Relies on `_value`.
    """
    return [variable._value for variable in variables]


def weights_in_memory(model: keras.Model) -> io.BytesIO:
    """The bytes that `model.save_weights` writes into a `.weights.h5` file.

    HDF5 does not survive a full disk: if a write fails while the file closes, the process ends with
    a segmentation fault (https://github.com/h5py/h5py/issues/914). Writing to memory avoids this.
    """
    from keras.src.saving import saving_lib

    file = io.BytesIO()
    store = saving_lib.H5IOStore(file, mode="w")
    saving_lib._save_state(model, store, None, inner_path="", visited_saveables=set())
    store.close()
    return file


@contextlib.contextmanager
def unlocked(layer: keras.layers.Layer):
    """Lets a built layer accept more weights during a `with` block.

    Relies on the layer's tracker refusing attributes with variables while it is locked.
    """
    layer._tracker.unlock()
    try:
        yield
    finally:
        layer._tracker.lock()


class Optimizer(keras.optimizers.Optimizer):
    """A `keras.optimizers.Optimizer` whose subclasses compute the whole update in `apply_step`.

    Relies on `apply` calling `_backend_apply_gradients(grads, trainable_variables)` once per step,
    on every backend, and adding 1 to `_iterations` afterward.
    """

    def apply_step(self, gradients, variables) -> None:
        """Applies one step's gradients to `variables`; subclasses implement it."""
        raise NotImplementedError

    def _backend_apply_gradients(self, grads, trainable_variables):
        self.apply_step(grads, trainable_variables)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        """Leaves the gradients to `apply_step`.

        Relies on TensorFlow's `_backend_update_step` calling this method to sum over replicas,
        which would come after clipping.
        """
        return grads_and_vars

    def _get_current_learning_rate(self):
        """The learning rate of this update.

        Relies on the property `learning_rate` calling this method, and on `_learning_rate` holding
        the schedule. Keras passes schedules `_iterations`, which counts the steps within an update.
        """
        if isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            return self._learning_rate(self.iterations)
        return super()._get_current_learning_rate()

    def index_of(self, variable) -> int:
        """The index of a variable passed to `build`, or of TensorFlow's variable behind it."""
        return self._get_variable_index(variable)

    @property
    def model_variables(self) -> list:
        """The variables passed to `build`."""
        return self._trainable_variables

    def decayed(self, suffixes: tuple[str, ...]) -> tuple[bool, ...]:
        """For each variable passed to `build`, whether its weight may decay.

        Its path must end with one of `suffixes`, and `exclude_from_weight_decay` must allow it.
        """
        may_decay = lambda v: v.path.endswith(suffixes) and self._use_weight_decay(v)
        return tuple(map(may_decay, self._trainable_variables))

    def clip_each(self, gradients) -> list:
        """Clips with Keras' `clipnorm` or `clipvalue`, if one is set."""
        return self._clip_gradients(gradients)

    def update_each(self, gradients, variables, learning_rate) -> None:
        """Calls `update_step` for each variable; on TensorFlow, in each replica."""
        self._backend_update_step(gradients, variables, learning_rate)

    def accumulate(self, gradients, variables, update: Callable, choose: Callable) -> None:
        """Calls `update(means, variables)` at the last of `gradient_accumulation_steps`.

        The other steps add their gradients up. `choose(condition, function, otherwise, changed)`
        calls one of two functions, both of which assign to the variables in `changed`.
        """
        steps = self.gradient_accumulation_steps
        sums = [self._accumulated_gradients[self.index_of(variable)] for variable in variables]

        def complete():
            update([(g + total) / steps for g, total in zip(gradients, sums)], variables)
            self._backend_reset_gradient_accumulators()

        def add():
            self._backend_increment_gradient_accumulators(gradients, sums)

        is_last = keras.ops.equal((self._iterations + 1) % steps, 0)
        choose(is_last, complete, add, [*self.model_variables, *self.variables])


def averages_of(optimizer: keras.optimizers.Optimizer) -> list:
    """The moving averages of an optimizer with `use_ema`, in the order of the weights."""
    return optimizer._model_variables_moving_average


def layout_of(variable):
    """The layout of a variable on JAX's devices, or None."""
    return getattr(variable, "_layout", None)


def build_metrics(model: keras.Model, shape: tuple[int, ...], dtype: str) -> None:
    """Makes the variables of a compiled model's metrics, for targets of a shape and type."""
    one = lambda x: keras.KerasTensor((1, *x.shape[1:]), x.dtype)
    batch = keras.tree.map_structure(one, model.input), keras.KerasTensor((1, *shape), dtype)
    model._symbolic_build(data_batch=batch)


def skip_building(model: keras.Model) -> None:
    """Keeps TensorFlow's `fit` from building a model that is already built.

    Relies on `fit` and `evaluate` calling `_maybe_symbolic_build` with keywords only.
    """
    model._maybe_symbolic_build = lambda **_: None


def wrap_logs(model: keras.Model, wrap: Callable) -> None:
    """Replaces the logs of `model` with `wrap(model, read_logs, logs)`, once for each model.

    Relies on the trainer calling `_get_metrics_result_or_logs(logs)` at the end of each step.
    """
    if "_get_metrics_result_or_logs" not in vars(model):
        read_logs = model._get_metrics_result_or_logs
        model._get_metrics_result_or_logs = functools.partial(wrap, model, read_logs)


@contextlib.contextmanager
def reduced_logs(reduce: Callable):
    """In a `with` block, TensorFlow's trainer computes a step's logs with `reduce(values)`.

    Relies on the trainer looking up `reduce_per_replica` in its module for each call.
    """
    from keras.src.backend.tensorflow import trainer

    original = trainer.reduce_per_replica
    trainer.reduce_per_replica = lambda values, *_, **__: reduce(values)
    try:
        yield
    finally:
        trainer.reduce_per_replica = original


JAX_STATE = "_jax_state"  # the attribute of a model that `fit` on JAX sets at every step


def is_torch_optimizer(module: str | None) -> bool:
    """Whether `module` is where Keras keeps the optimizers of the torch backend."""
    return str(module).startswith("keras.src.backend.torch.optimizers")


def store_variables_once(archive: keras.export.ExportArchive) -> None:
    """Makes a SavedModel hold only TensorFlow's variables; Keras' own would repeat them.

    Relies on `_tf_trackable`.
    """
    tracked = archive._tf_trackable
    for name in ("variables", "trainable_variables", "non_trainable_variables"):
        setattr(tracked, name, [variable.value for variable in getattr(tracked, name)])


def compute_in_float32() -> None:
    """Gives models on Keras' OpenVINO backend float32 arithmetic, as on the other backends.

    Without it, OpenVINO computes in bfloat16 on processors with AMX, whatever the model's dtype.
    """
    import openvino
    from keras.src.backend.openvino import trainer

    exact = functools.partial(openvino.compile_model, config={"INFERENCE_PRECISION_HINT": "f32"})
    trainer.ov = types.SimpleNamespace(**vars(openvino) | {"compile_model": exact})
