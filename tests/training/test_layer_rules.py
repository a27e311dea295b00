"""Frozen layers, rates that differ between layers, and refused settings of an optimizer."""

import pytest

from tests.update_reference import small_model
from vit_keras.models import HybridViT, VisionTransformer
from vit_keras.training import freeze
from vit_keras.training.optimizers import num_blocks, rate_multiplier

pytestmark = pytest.mark.on("torch")


@pytest.mark.parametrize(
    ("patterns", "trained"),
    [
        (["[!h]*"], {"head"}),
        (["embedding", "encoderblock_*"], {"cls", "posembed_input", "encoder_norm", "head"}),
        (["encoder*", "?ls", "embedding", "head"], {"posembed_input"}),
    ],
)
def test_freeze_leaves_the_other_layers(rng, patterns, trained):
    model = small_model(rng)
    freeze(model, patterns)
    assert {v.path.split("/")[0] for v in model.trainable_variables} == trained


def test_stems_are_the_first_layer():
    transformer = {"hidden_size": 12, "num_layers": 3, "num_heads": 3, "mlp_dim": 20}
    model = HybridViT(32, (1,), 0.5, 1, num_classes=5, **transformer)
    layers = {}
    for path in (variable.path for variable in model.trainable_variables):
        multiplier = rate_multiplier(path, 0.5, num_blocks(model))
        layers.setdefault(multiplier, set()).add(path.split("/")[0])
    stem = {"conv_root", "gn_root", "block1", "embedding", "cls", "posembed_input"}
    assert layers == {
        0.0625: stem,
        0.125: {"encoderblock_0"},
        0.25: {"encoderblock_1"},
        0.5: {"encoderblock_2"},
        1.0: {"encoder_norm", "head"},
    }


def test_all_tokens_before_the_patches_and_the_first_norm_are_the_first_layer():
    sizes = {"hidden_size": 12, "num_layers": 3, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}
    options = {"pre_norm": True, "num_registers": 2, "classifier": "distilled"}
    model = VisionTransformer(8, 4, **sizes, **options)
    first = [v.path for v in model.weights if rate_multiplier(v.path, 0.5, 3) == 0.5**4]
    names = {path.split("/")[0] for path in first}
    assert names == {"embedding", "cls", "dist", "registers", "posembed_input", "pre_norm"}
