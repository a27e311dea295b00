"""Private names of Keras are used in one file, which accepts only versions that were tested."""

import re
import tomllib

import keras
import pytest

from tests.helpers import ROOT
from vit_keras.support import keras_internals


@pytest.mark.once
def test_another_version_of_keras_is_refused(monkeypatch):
    for version in ("3.14.1", "3.16.0", "4.0"):
        monkeypatch.setattr(keras, "__version__", version)
        with pytest.raises(ImportError, match=rf"{version}.*pip install \"keras>=3.15,<3.16\""):
            keras_internals.check_keras()


@pytest.mark.once
def test_the_package_requires_the_versions_that_are_checked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert keras_internals.REQUIREMENT in project["dependencies"]


PRIVATE = {
    *("_backend_apply_gradients", "_backend_update_step", "_clip_gradients", "_jax_state"),
    *("_backend_increment_gradient_accumulators", "_backend_reset_gradient_accumulators"),
    *("_get_current_learning_rate", "_get_variable_index", "_use_weight_decay", "_iterations"),
    *("_flatten_layers", "_get_metrics_result_or_logs", "_symbolic_build", "_get_h5_file"),
    *("_save_state", "_all_reduce_sum_gradients", "_maybe_symbolic_build", "reduce_per_replica"),
    *("_accumulated_gradients", "_inbound_nodes", "_initial_seed", "_layout", "_learning_rate"),
    *("_keras_history", "_model_variables_moving_average", "_nodes_by_depth", "_outbound_nodes"),
    "_trainable_variables",
}


@pytest.mark.once
def test_no_other_file_uses_these_names():
    private = re.compile(rf"(\.|def )({'|'.join(PRIVATE)})\b|^from keras\.src", re.MULTILINE)
    for path in (ROOT / "vit_keras").rglob("*.py"):
        if path.name != "keras_internals.py":
            assert not private.search(path.read_text()), path
