"""Small `.keras` files whose configuration describes large models."""

import json
import zipfile

import pytest

import vit_keras
from tests.fuzz.crafted_json import spoil_keras
from vit_keras import weights
from vit_keras.models import HybridViT, VisionTransformer

pytestmark = pytest.mark.once

SIZES = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "mlp_dim": 64, "num_classes": 5}


def places(content, field, place=()):
    """Where a configuration has a number in `field`."""
    if isinstance(content, dict) and isinstance(content.get(field), int):
        yield (*place, field)
    if isinstance(content, (dict, list)):
        pairs = content.items() if isinstance(content, dict) else enumerate(content)
        for key, inner in pairs:
            yield from places(inner, field, (*place, key))


def spoiled(path, model, field, value):
    weights.save_model(model, path)
    with zipfile.ZipFile(path) as archive:
        (place, *_) = places(json.loads(archive.read("config.json")), field)
    spoil_keras(place, str(value))(path)
    return path


@pytest.mark.parametrize(
    ("field", "value", "each", "before"),
    [("mlp_dim", 10**9, 65, 64), ("units", 10**9, 33, 5), ("units", 10**5, 33, 5)],
)
def test_a_model_that_the_file_cannot_hold_is_refused(tmp_path, field, value, each, before):
    model = VisionTransformer(16, 8, **SIZES)
    held = model.count_params()
    path = spoiled(tmp_path / "a.keras", model, field, value)
    message = f"describes {held + each * (value - before)} weights, and it holds {held}"
    with pytest.raises(
        ValueError, match=rf"a\.keras' cannot be read as a Keras model: .*{message}"
    ):
        vit_keras.open(path)


def test_units_without_tensors_are_refused(tmp_path):
    model = HybridViT(32, (1, 1), 0.5, 1, **SIZES)
    path = spoiled(tmp_path / "a.keras", model, "num_units", 10**9)
    with pytest.raises(ValueError, match=r"num_units 1000000000, and it holds \d+ tensors"):
        vit_keras.open(path)
