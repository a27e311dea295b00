"""Keras' presets on Kaggle, from the cache of kagglehub, and where it cannot be reached."""

import shutil

import numpy as np
import pytest

import vit_keras
from tests.helpers import randomize, weights_by_path
from vit_keras import weights
from vit_keras.models import VisionTransformer

pytestmark = pytest.mark.on("torch")

HANDLE = "keras/vit/keras/tiny"
NO_SERVER = "http://127.0.0.1:9"


@pytest.fixture
def cached(tmp_path, monkeypatch, rng):
    """Version 2 of a preset in the cache, as kagglehub leaves it; and its model."""
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path))
    monkeypatch.setenv("KAGGLE_API_ENDPOINT", NO_SERVER)
    monkeypatch.setenv("no_proxy", "*")
    model = randomize(VisionTransformer(16, 8, 12, 1, 2, 16, 3, gelu="exact"), rng)
    folder = tmp_path / "models" / HANDLE / "2"
    weights.save(model, folder, format="keras_hub")
    shutil.copytree(folder, folder.with_name("3"))  # whose download did not end
    (folder.parent / "2.complete").touch()
    return model


@pytest.mark.parametrize("address", [f"kaggle://{HANDLE}/2", f"kaggle://{HANDLE}"])
def test_a_preset_in_the_cache_needs_no_network(cached, address):
    model = vit_keras.open(address)
    expected = weights_by_path(cached)
    for path, value in weights_by_path(model).items():
        np.testing.assert_array_equal(value, expected[path])


def test_what_is_not_in_the_cache_is_told(cached):
    for address in (f"kaggle://{HANDLE}/3", "kaggle://keras/vit/keras/base"):
        with pytest.raises(ConnectionError, match=f"{address} is not in the cache and cannot be"):
            weights.local_path(address)
    with pytest.raises(ValueError, match=r"must be kaggle://OWNER/MODEL/FRAMEWORK/VARIATION"):
        weights.local_path("kaggle://keras/vit/../x")
