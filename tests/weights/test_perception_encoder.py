"""Meta's Perception Encoder: Core, Lang and Spatial, both ways; golden files say the values."""

import pytest

import vit_keras
from tests.helpers import GOLDEN, assert_close, randomize
from tests.weights.builds import assert_equal_weights
from vit_keras import weights
from vit_keras.models import VisionTransformer

pytestmark = pytest.mark.on("torch")

torch = pytest.importorskip("torch")

STEM = {"pre_norm": True, "layer_norm_epsilon": 1e-5}
WITH_CLASS = {**STEM, "rope": {"base": 10000.0, "offset": 1.0}}
WITHOUT = {**STEM, "rope": {"base": 10000.0}}
CORE = {"classifier": "map", "pool_all_tokens": True, "map_heads": 8, "head_use_bias": False}
BARE = {"num_classes": None, "final_norm": False}
DESIGNS = {
    "core": {**WITH_CLASS, **CORE, "class_token": True, "num_classes": 6},
    "core G": {**WITHOUT, **CORE, "map_mlp_dim": 64, "num_classes": 6},
    "lang": {**WITHOUT, **BARE, "classifier": "gap", "layer_scale": 0.1},
    "spatial": {**WITH_CLASS, **BARE},
}


def build(rng, design):
    return randomize(VisionTransformer(24, 8, 16, 2, 2, 40, **DESIGNS[design]), rng)


@pytest.mark.parametrize("design", DESIGNS)
def test_files_give_the_model_back_bit_by_bit(rng, tmp_path, design):
    model = build(rng, design)
    weights.save(model, tmp_path / "model.pt", format="perception_encoder")
    other = vit_keras.open(tmp_path / "model.pt", num_heads=2)
    assert_equal_weights(model, other)
    images = rng.normal(size=(2, 24, 24, 3)).astype("float32")
    assert_close(other(images), model(images), rtol=2e-6)


def test_the_text_tower_is_left_out_and_the_image_tower_must_fit(tmp_path):
    (tmp_path / "config.json").write_text('{"heads": 2}')
    golden = GOLDEN / "families" / "meta_pe_core" / "PE-Core-B16-224.pt"
    state = torch.load(golden, weights_only=True)
    text = {"transformer.resblocks.0.ln_1.weight": torch.ones(4), "logit_scale": torch.ones(())}
    both = {f"visual.{name}": x for name, x in state.items()} | text
    torch.save(both, tmp_path / "both.pt")
    model = vit_keras.open(tmp_path / "both.pt")
    assert_equal_weights(vit_keras.open(golden), model)
    torch.save({**state, "transformer.resblocks.0.other": torch.ones(4)}, tmp_path / "more.pt")
    with pytest.raises(ValueError, match="not in the model: transformer.resblocks.0.other"):
        vit_keras.open(tmp_path / "more.pt")
