"""A model saved on this backend is the same model on another, and trains on there.

Each backend hands its models to the next one, and `make nightly` also to the one after it.
"""

import keras
import numpy as np
import pytest

from tests.helpers import BACKENDS, assert_close, initial_weights, randomize, run_script, to_numpy
from vit_keras import training
from vit_keras.models import VisionTransformer

POLICIES = {"float32": 4e-6, "mixed_bfloat16": 0.08, "mixed_float16": 8e-3}
OPTIMIZERS = {  # Keras' own, which torch saves under another name, and both of ours
    "float32": lambda rate: keras.optimizers.AdamW(rate),
    "mixed_bfloat16": lambda rate: training.AdamW(rate, layer_decay=0.9, num_layers=1),
    "mixed_float16": lambda rate: training.SGD(rate, momentum_dtype="bfloat16"),
}
_place = BACKENDS.index(keras.backend.backend())
NEXT, AFTER = (BACKENDS[(_place + step) % 3] for step in (1, 2))
OTHERS = [NEXT, pytest.param(AFTER, marks=pytest.mark.nightly)]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Saves models of every precision after one training step; returns their outputs here."""
    folder, rng = tmp_path_factory.mktemp("models"), np.random.default_rng(3)
    images = rng.uniform(-1, 1, (4, 16, 8, 3)).astype("float32")
    np.save(folder / "images.npy", images)
    outputs = {}
    for policy in POLICIES:
        model = VisionTransformer(
            (16, 8), 4, 24, 1, 3, 40, 5, representation_size=8, dropout_rate=0.1, dtype=policy
        )
        randomize(model, rng, scale=0.25)
        schedule = training.WarmupDecay(1e-3, total_steps=10)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        jit = keras.backend.backend() == "jax"
        model.compile(OPTIMIZERS[policy](schedule), loss, jit_compile=jit)
        model.train_on_batch(images, np.arange(4) % 5)
        model.save(folder / f"{policy}.keras")
        outputs[policy] = model.predict(images, verbose=0)
    return folder, outputs


@pytest.fixture(scope="module", params=OTHERS)
def there(request, here):
    """Returns what a process on another backend computes with the saved models."""
    folder, _ = here
    run_script("-m", "tests.worker", folder, backend=request.param)
    with np.load(folder / f"from_{request.param}.npz") as file:
        return dict(file)


def test_logits_are_the_same_and_training_goes_on(here, there):
    for policy, rtol in POLICIES.items():
        outputs, expected = there[f"{policy}/outputs"], here[1][policy]
        assert np.abs(expected).max() > 0.3  # far from the zeros of an untrained head
        assert_close(outputs, expected, rtol, policy)
        assert np.isfinite(there[f"{policy}/loss"]).all(), policy
        assert there[f"{policy}/iterations"] == 1, policy
        if policy != "mixed_float16":  # its loss scale starts so high that first steps are skipped
            assert there[f"{policy}/moved"] > 1e-5, policy


def test_initial_weights_are_identical(there):
    ours = initial_weights()
    theirs = {k.removeprefix("initial/"): v for k, v in there.items() if k.startswith("initial/")}
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_array_equal(theirs[name], value, err_msg=name)


def test_precision_of_the_mixed_policies(here):
    """Mixed precision stays near float32 on the same weights."""
    folder, outputs = here
    images = np.load(folder / "images.npy")
    for policy, rtol in list(POLICIES.items())[1:]:
        mixed = keras.saving.load_model(folder / f"{policy}.keras")
        plain = VisionTransformer((16, 8), 4, 24, 1, 3, 40, 5, representation_size=8)
        plain.set_weights([to_numpy(w.value) for w in mixed.weights])
        expected = plain.predict(images, verbose=0)
        assert_close(outputs[policy], expected, rtol, policy)
