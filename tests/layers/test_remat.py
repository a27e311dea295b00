"""Rematerialized blocks against plain ones: the same masks, gradients and seeds."""

import keras
import numpy as np
import pytest

from tests.helpers import randomize, to_numpy, weights_by_path
from vit_keras.models import HybridViT, VisionTransformer

RATES = {"dropout_rate": 0.2, "attention_dropout_rate": 0.3, "stochastic_depth_rate": 0.4}
SIZES = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24, "num_classes": 3}


def model_of(remat, **changes):
    arguments = {**SIZES, **RATES, "rematerialize": remat, "seed": 3, **changes}
    return randomize(VisionTransformer(8, 4, **arguments), np.random.default_rng(1))


def fitted(model, steps, eager=False):
    """Trains `model` for `steps` updates by plain gradients, so only these can make it differ."""
    rng = np.random.default_rng(2)
    images = rng.normal(size=(4 * steps, 8, 8, 3)).astype("float32")
    labels = rng.normal(size=(4 * steps, 3)).astype("float32")
    model.compile(keras.optimizers.SGD(0.05), "mse", run_eagerly=eager)
    model.fit(images, labels, batch_size=4, shuffle=False, verbose=0)
    return model


def draws(model):
    """The states of the seed generators, in the order of the layers."""
    return [to_numpy(v) for v in model.variables if v.path not in weights_by_path(model)]


@pytest.fixture(scope="module")
def runs():
    """A model before training, plain and rematerialized after three updates."""
    relative = {"position_embedding": "relative"}  # its table is used inside the blocks as well
    plain, remat = (fitted(model_of(remat, **relative), 3) for remat in (False, True))
    return weights_by_path(model_of(False, **relative)), plain, remat


def gradients_differ(before, plain, remat):
    """The largest difference of the summed gradients, relative to the largest of a variable."""
    plain, remat = weights_by_path(plain), weights_by_path(remat)
    return max(
        np.abs(plain[name] - remat[name]).max() / np.abs(plain[name] - before[name]).max()
        for name in before
        if not name.endswith("key/bias")  # whose gradient is 0 but for rounding
    )


def test_gradients_are_those_of_plain_blocks_with_all_dropouts(runs):
    # Weights moved by 1e-2 of their size, so that float32 rounds each update at 6e-6 of the move.
    assert gradients_differ(*runs) < 5e-5


def test_seeds_advance_as_in_plain_blocks(runs):
    _, plain, remat = runs
    assert len(draws(plain)) == 1 + 2 * 4 + 2  # stochastic depth is 0 in the first block
    np.testing.assert_array_equal(np.stack(draws(remat)), np.stack(draws(plain)))
    assert {int(state[1]) for state in draws(remat)} == {3}


def test_hybrids_rematerialize_their_blocks():
    model = HybridViT(16, (), 0.5, 2, **SIZES, rematerialize=True)
    assert all(model.get_layer(f"encoderblock_{i}").rematerialize for i in range(2))


@pytest.mark.on("torch")
@pytest.mark.parametrize("rates", [RATES, dict.fromkeys(RATES, 0.0)], ids=["dropouts", "none"])
def test_rematerialized_blocks_keep_less_for_the_backward_pass(rates):
    import torch

    def kept(remat):
        sizes = []
        keep = lambda t: sizes.append(t.nbytes) or t
        model = model_of(remat, **rates)
        images = np.ones((16, 8, 8, 3), "float32")
        model(images)  # a second call may take a shorter way
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            model(images, training=True)
        return sum(sizes)

    assert kept(True) < (0.25 if rates["dropout_rate"] else 0.35) * kept(False)
