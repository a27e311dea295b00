"""Every private name of Keras that the package uses: today's Keras has it, and as it is called."""

import ast
import importlib
import inspect
import tomllib

import keras
import numpy as np
import pytest

from tests.helpers import ROOT
from vit_keras.support import keras_internals

OPTIMIZER = "keras.optimizers:Optimizer"
TRAINER = "keras:Model"
METHODS = [  # (object, method, parameters without self)
    (OPTIMIZER, "_backend_apply_gradients", ["grads", "trainable_variables"]),
    (OPTIMIZER, "_backend_update_step", ["grads", "trainable_variables", "learning_rate"]),
    (OPTIMIZER, "_backend_increment_gradient_accumulators", ["grads", "acc_grads"]),
    (OPTIMIZER, "_backend_reset_gradient_accumulators", []),
    (OPTIMIZER, "_clip_gradients", ["grads"]),
    (OPTIMIZER, "_get_current_learning_rate", []),
    (OPTIMIZER, "_get_variable_index", ["variable"]),
    (OPTIMIZER, "_use_weight_decay", ["variable"]),
    (TRAINER, "_flatten_layers", ["include_self", "recursive"]),
    (TRAINER, "_get_metrics_result_or_logs", ["logs"]),
    (TRAINER, "_symbolic_build", ["iterator", "data_batch"]),
    ("keras.src.saving.saving_lib:H5IOStore", "_get_h5_file", ["path_or_io", "mode"]),
    (
        "keras.src.saving.saving_lib:None",
        "_save_state",
        ["saveable", "weights_store", "assets_store", "inner_path", "visited_saveables"],
    ),
]
TENSORFLOW_METHODS = [
    (OPTIMIZER, "_all_reduce_sum_gradients", ["grads_and_vars"]),
    (TRAINER, "_maybe_symbolic_build", ["iterator", "data_batch"]),
    (
        "keras.src.backend.tensorflow.trainer:None",
        "reduce_per_replica",
        ["values", "strategy", "reduction"],
    ),
]


def check_signature(place, name, parameters):
    module, holder = place.split(":")
    module = importlib.import_module(module)
    function = getattr(module if holder == "None" else getattr(module, holder), name)
    assert [p for p in inspect.signature(function).parameters if p != "self"] == parameters


@pytest.mark.parametrize("place, name, parameters", METHODS, ids=[row[1] for row in METHODS])
def test_keras_has_the_method(place, name, parameters):
    check_signature(place, name, parameters)


@pytest.mark.on("tensorflow")
@pytest.mark.parametrize("place, name, parameters", TENSORFLOW_METHODS, ids=lambda v: str(v))
def test_keras_has_the_method_on_tensorflow(place, name, parameters):
    check_signature(place, name, parameters)


def an_optimizer(**options):
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    optimizer = keras.optimizers.SGD(0.5, **options)
    optimizer.build(layer.trainable_variables)
    return optimizer, layer


def test_an_optimizer_holds_its_state_under_these_names():
    optimizer, layer = an_optimizer(use_ema=True, gradient_accumulation_steps=2)
    assert list(optimizer._trainable_variables) == layer.trainable_variables
    shapes = [variable.shape for variable in layer.trainable_variables]
    for slots in (optimizer._accumulated_gradients, optimizer._model_variables_moving_average):
        assert [slot.shape for slot in slots] == shapes
    assert keras_internals.averages_of(optimizer) is optimizer._model_variables_moving_average
    assert int(optimizer._iterations) == 0
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    assert keras.optimizers.SGD(schedule)._learning_rate is schedule


def test_one_step_applies_its_gradients_once_and_counts_after():
    calls = []

    class Counting(keras_internals.Optimizer):
        def apply_step(self, gradients, variables):
            calls.append((int(self._iterations), len(gradients), bool(self.completes_update())))

    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    optimizer = Counting(0.5, gradient_accumulation_steps=2)
    gradients = [keras.ops.ones(v.shape) for v in layer.trainable_variables]
    for _ in range(2):
        optimizer.apply(gradients, layer.trainable_variables)
    assert calls == [(0, 2, False), (1, 2, True)]


def test_the_graph_of_a_functional_model_is_read():
    inputs = keras.Input((3,))
    dense, activation = keras.layers.Dense(2), keras.layers.ReLU()
    hidden = dense(inputs)
    output = activation(hidden)
    keras.layers.Dense(1)(hidden)
    assert keras_internals.operation_of(output) is activation
    assert keras_internals.first_input_of(output) is hidden
    assert keras_internals.count_uses(dense) == 2 and keras_internals.count_uses(activation) == 0
    model = keras.Model(inputs, output)
    assert dense in keras_internals.sublayers(model)


def compiled():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def test_metrics_are_built_from_a_symbolic_batch():
    model = compiled()
    batch = keras.KerasTensor((1, 3)), keras.KerasTensor((1, 2))
    keras_internals.build_metrics(model, batch)
    assert len(model.metrics_variables) == 4  # a sum and a count of the loss and of the metric


def test_logs_are_read_through_the_wrapper():
    model = compiled()
    wrap = lambda model, read_logs, logs: {**read_logs(logs), "seen": 1.0}
    for _ in range(2):  # the second call changes nothing
        keras_internals.wrap_logs(model, wrap)
    history = model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0).history
    assert history["seen"] == [1.0] and history["mae"]


@pytest.mark.on("tensorflow")
def test_fit_does_not_build_again_and_reduces_logs_as_told():
    model = compiled()
    keras_internals.skip_building(model)
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    from keras.src.backend.tensorflow import trainer

    with keras_internals.reduced_logs(lambda values: "reduced"):
        assert trainer.reduce_per_replica({"loss": 1.0}, None, reduction="auto") == "reduced"


@pytest.mark.on("jax")
def test_fit_sets_the_state_under_this_name():
    names = []

    class Watching(keras.Model):
        def __setattr__(self, name, value):
            names.append(name)
            super().__setattr__(name, value)

    inputs = keras.Input((3,))
    model = Watching(inputs, keras.layers.Dense(2)(inputs))
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    assert any(keras_internals.is_jax_state(name) for name in names)


@pytest.mark.on("torch")
def test_keras_saves_its_own_optimizers_by_a_module_of_torch():
    config = keras.saving.serialize_keras_object(keras.optimizers.SGD(0.1))
    assert keras_internals.is_torch_optimizer(config["module"])
    assert not keras_internals.is_torch_optimizer("keras.optimizers")


def test_a_fixed_seed_gives_one_mask():
    x = keras.ops.ones((4, 8))
    seed = keras.random.SeedGenerator(3).next()
    masks = [keras.random.dropout(x, 0.5, seed=keras_internals.FixedSeed(seed)) for _ in range(2)]
    np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, masks))


def test_a_variable_has_a_layout():
    _, layer = an_optimizer()
    assert hasattr(layer.kernel, "_layout") and keras_internals.layout_of(layer.kernel) is None


def test_another_version_of_keras_is_refused_where_a_private_name_is_used(monkeypatch):
    for version in ("3.14.1", "3.16.0", "4.0"):
        monkeypatch.setattr(keras, "__version__", version)
        with pytest.raises(ImportError, match=rf"{version}.*pip install \"keras>=3.15,<3.16\""):
            keras_internals.Optimizer(0.1)
    monkeypatch.undo()
    keras_internals.check_keras()


@pytest.mark.once
def test_the_package_requires_the_versions_that_are_checked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert keras_internals.REQUIREMENT in project["dependencies"]


PRIVATE = {row[1] for row in [*METHODS, *TENSORFLOW_METHODS]} | {
    *("_accumulated_gradients", "_inbound_nodes", "_initial_seed", "_iterations", "_jax_state"),
    *("_keras_history", "_layout", "_learning_rate", "_model_variables_moving_average"),
    *("_outbound_nodes", "_trainable_variables", "_nodes_by_depth"),
}


@pytest.mark.once
def test_no_other_file_uses_these_names():
    for path in (ROOT / "vit_keras").rglob("*.py"):
        if path.name == "keras_internals.py":
            continue
        tree = ast.parse(path.read_text())
        names = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        names |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        assert not names & PRIVATE, path
        modules = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert not [name for name in modules if name.startswith("keras.src")], path


def test_a_dense_layer_holds_its_kernel_and_locks_its_weights_under_these_names():
    for layer in (keras.layers.Dense(3), keras.layers.EinsumDense("ab,bc->ac", 3)):
        layer.build((None, 2))
        assert keras_internals.stored_kernel(layer) is layer.weights[0]
        with pytest.raises(ValueError, match="cannot add new elements of state"):
            layer.added = layer.add_weight(name="added", shape=())
        with keras_internals.unlocked(layer):
            layer.added = layer.add_weight(name="added", shape=())
        assert layer.weights[-1] is layer.added and layer._tracker.locked


def test_a_chain_is_told_from_other_graphs():
    inputs = keras.Input((3,))
    dense, dropout, head = keras.layers.Dense(3), keras.layers.Dropout(0.5), keras.layers.Dense(2)
    hidden = dropout(dense(inputs))
    assert keras_internals.chain_of(keras.Model(inputs, head(hidden))) == [dense, dropout, head]
    added = keras.Model(inputs, head(keras.layers.add([hidden, inputs])))
    always = keras.Model(inputs, head(dropout(dense(inputs), training=True)))
    several = keras.Model(inputs, [hidden, head(hidden)])
    for model in (added, always, several):
        assert keras_internals.chain_of(model) == []


@pytest.mark.on("torch")
def test_tensors_of_weights_are_read_at_once():
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    kernel, bias = keras_internals.tensors_of([layer.kernel, layer.bias])
    assert kernel is layer.kernel.value and bias is layer.bias.value
