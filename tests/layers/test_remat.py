"""Rematerialized blocks against plain ones: the same masks, gradients and seeds."""

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras.models import VisionTransformer

RATES = {"dropout_rate": 0.2, "attention_dropout_rate": 0.3, "stochastic_depth_rate": 0.4}
SIZES = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24, "num_classes": 3}


def model_of(remat, **changes):
    arguments = {**SIZES, **RATES, "rematerialize": remat, "seed": 3, **changes}
    return randomize(VisionTransformer(8, 4, **arguments), np.random.default_rng(1))


def fitted(model):
    """Trains `model` for three updates by plain gradients, so only these can make it differ."""
    rng = np.random.default_rng(2)
    images = rng.normal(size=(12, 8, 8, 3)).astype("float32")
    labels = rng.normal(size=(12, 3)).astype("float32")
    model.compile(keras.optimizers.SGD(0.05), "mse")
    model.fit(images, labels, batch_size=4, shuffle=False, verbose=0)
    return model


def draws(model):
    """The states of the seed generators, in the order of the layers."""
    return [to_numpy(v) for v in model.variables if v.path not in weights_by_path(model)]


@pytest.fixture(scope="module")
def runs():
    """A model before training, plain and rematerialized after three updates."""
    design = {"position_embedding": "relative", "mlp": "swiglu", "layer_scale": 0.5}
    plain, remat = (fitted(model_of(remat, **design)) for remat in (False, True))
    return weights_by_path(model_of(False, **design)), plain, remat


def test_gradients_and_seeds_are_those_of_plain_blocks_with_all_dropouts(runs):
    before, *models = runs
    plain, remat = map(weights_by_path, models)
    for name, start in before.items():
        if not name.endswith("key/bias"):  # whose gradient is 0 but for rounding
            # Weights moved by 1e-2 of their size: float32 rounds each update at 6e-6 of the move.
            assert_close(remat[name] - start, plain[name] - start, rtol=5e-5, name=name)
    states = [np.stack(draws(model)) for model in models]
    assert len(states[0]) == 1 + 2 * 4 + 2  # stochastic depth is 0 in the first block
    np.testing.assert_array_equal(*states)
    assert {int(state[1]) for state in states[0]} == {3}


@pytest.mark.on("torch")
@pytest.mark.parametrize("rates", [RATES, dict.fromkeys(RATES, 0.0)], ids=["dropouts", "none"])
def test_rematerialized_blocks_keep_less_for_the_backward_pass(rates):
    import torch

    def kept(remat):
        sizes, model = [], model_of(remat, **rates)
        images = np.ones((16, 8, 8, 3), "float32")
        model(images)  # a second call may take a shorter way
        keep = lambda t: sizes.append(t.nbytes) or t
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            model(images, training=True)
        return sum(sizes)

    assert kept(True) < (0.25 if rates["dropout_rate"] else 0.35) * kept(False)
