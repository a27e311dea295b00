"""Registered layers that are not public pass Keras' own test too, and none is forgotten."""

import importlib
import pkgutil

import keras
import pytest

import vit_keras
from tests.layers.test_harness import CASES, GRID, TOKENS, Case, check_contract
from vit_keras.exporting import inference_model, serving, token_merging
from vit_keras.layers import common
from vit_keras.models import text

pytestmark = [
    pytest.mark.filterwarnings("ignore:The model does not have any trainable weights"),
    pytest.mark.nightly_on("jax"),  # which compiles each operation of each layer by itself
]
BLOCK = {"num_heads": 3, "mlp_dim": 8}
OTHERS = {
    common.LayerNormalization: Case({"epsilon": 1e-6}, TOKENS, TOKENS, 2),
    common.Dropout: Case({"rate": 0.5}, TOKENS, TOKENS, seeds=1),
    inference_model.ClassTokenBlock: Case(BLOCK, TOKENS, (2, 1, 12), 16),
    serving.Rollout: Case({"grid": GRID}, [(2, 7, 7), (2, 1, 7)], (2, 2, 3), trains=False),
    serving.BoxesAndScores: Case(
        {}, (2, 5, 9), {"boxes": (2, 5, 4), "scores": (2, 5, 4)}, trains=False
    ),
    serving.MostLikelyClass: Case({}, (2, 4, 6, 5), (2, 4, 6), trains=False),
    token_merging.MergingBlock: Case({**BLOCK, "merged": 2}, TOKENS, ((2, 4, 12), (2, 4, 1)), 16),
    text.PairLogits: Case(
        {"logit_scale": 1.0, "logit_bias": 0.5},
        *({"x_shape": (2, 6), "texts_shape": (2, 6)}, (2, 2), 2),
        trains=False,
    ),
    token_merging.WeightedMean: Case(
        {}, {"x_shape": TOKENS, "size_shape": (2, 6, 1)}, (2, 12), trains=False
    ),
}
# Its first argument is a model, and views of two sizes are its inputs; runs train it.
LEFT_OUT = {"SelfDistillation"}


def registered_layers():
    """All layers that importing every module of the package registers, `{name: class}`."""
    for module in pkgutil.walk_packages(vit_keras.__path__, "vit_keras."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    classes = keras.saving.get_custom_objects().items()
    return {
        name.removeprefix("vit_keras>"): kind
        for name, kind in classes
        if name.startswith("vit_keras>")
        and isinstance(kind, type)
        and issubclass(kind, keras.layers.Layer)
        and not issubclass(kind, keras.Model)
    }


@pytest.mark.once
def test_every_registered_layer_has_a_case():
    cases = {*CASES, *(kind.__name__ for kind in OTHERS)}
    assert {*registered_layers()} == cases | LEFT_OUT


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.__name__)
def test_a_layer_keeps_the_contract_of_keras(kind):
    check_contract(kind, OTHERS[kind])
