"""Every private name of Keras that the package uses: today's Keras has it, and as it is called."""

import ast
import importlib
import inspect
import tomllib

import keras
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
