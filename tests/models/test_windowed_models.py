"""Models with windows of attention, and what is made from them; `test_vitdet` has the numbers."""

import keras
import numpy as np
import pytest

import vit_keras
from tests.designs import images_for, random_design
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras import exporting, inspection, models
from vit_keras.config import ModelConfig
from vit_keras.inspection import flops
from vit_keras.layers import EncoderBlock
from vit_keras.models import VisionTransformer
from vit_keras.weights.architectures import VisionTransformerArchitecture

SIZES = {"hidden_size": 16, "num_layers": 3, "num_heads": 2, "mlp_dim": 32, "num_classes": None}
WINDOWED = "encoderblock_0"


@pytest.mark.on("torch")
def test_another_image_size_divides_its_own_grid(rng):
    """Fixed positions have no weights, so that both models have the same ones."""
    design = {"position_embedding": "sincos2d", "window_size": (2, 3), "global_blocks": (2,)}
    small, large = (
        randomize(VisionTransformer(size, 4, **SIZES, **design), np.random.default_rng(1))
        for size in ((12, 16), (20, 28))
    )
    resized = models.with_image_size(small, (20, 28))
    images = rng.normal(size=(2, 20, 28, 3)).astype("float32")
    assert_close(resized(images), large(images))
    assert resized.get_layer(WINDOWED).attention.windows.counts == (3, 3)
    assert resized.get_layer("encoderblock_2").attention.windows is None


@pytest.mark.once
def test_costs_are_those_of_a_formula():
    """A class token sees all tokens; windows of 2 x 2 stand over 4 x 4 places for 3 x 4 patches."""
    sizes = {**SIZES, "hidden_size": 24, "num_classes": 5}
    model = VisionTransformer((12, 16), 4, **sizes, window_size=2, global_blocks=(1,))
    width, tokens, windows, patches = 24, 13, 4, 4
    whole = 2 * tokens**2 * width
    divided = 2 * (tokens + windows * patches * (patches + 1)) * width
    block = tokens * (4 * width**2 + 2 * width * SIZES["mlp_dim"])
    stem, head = 12 * 4 * 4 * 3 * width, width * 5
    assert flops(model).macs == stem + 3 * block + whole + 2 * divided + head


@pytest.mark.on("torch")
def test_the_options_are_read_off_a_model(tmp_path):
    model = random_design("ViTDet", num_layers=4, global_blocks=[3, 0])
    arguments = VisionTransformerArchitecture.from_model(model).arguments
    assert arguments["window_size"] == (2, 2) and arguments["global_blocks"] == (0, 3)
    model.save(tmp_path / "model.keras")
    again = vit_keras.open(tmp_path / "model.keras")
    images = images_for(model)
    assert_close(again(images), model(images), rtol=2e-6)
    assert VisionTransformerArchitecture.from_model(again).arguments == arguments
    options = {"window_size": [2, 3], "global_blocks": [1]}  # as YAML has them
    fields = {**SIZES, "image_size": 16, "patch_size": 4, "options": options}
    del fields["num_classes"]
    built = models.from_model_config(ModelConfig(**fields), num_classes=3)
    windows = [layer.options.window_size for layer in built.layers if type(layer) is EncoderBlock]
    assert windows == [(2, 3), None, (2, 3)]


@pytest.mark.once
def test_what_needs_all_tokens_refuses_windows(tmp_path):
    model = random_design("ViTDet")
    message = "attend to all tokens. Received: model .*encoderblock_0 attend.*window_size=.2, 2."
    with pytest.raises(ValueError, match=f"Attention maps need blocks that {message}"):
        models.attention_maps(model)
    with pytest.raises(ValueError, match=f"Outputs of attention need blocks that {message}"):
        exporting.for_inference(model, with_attention=True)
    with pytest.raises(ValueError, match=r"without some.*'encoderblock_0' with window_size=\(2, 2"):
        exporting.for_inference(model, token_merging=1)
    views = "filters, position_similarity, features"
    assert inspection.views_of(model) == views.split(", ")
    with pytest.raises(ValueError, match=f"layers that attend to all tokens.*views {views}"):
        inspection.views_of(model, ["attention_rollout"])


@pytest.mark.on("torch")
def test_a_global_block_gives_its_weights():
    from vit_keras.layers import WithAttentionWeights

    model = random_design("ViTDet")
    tokens = models.intermediates(model)(images_for(model))[WINDOWED]
    _, maps = WithAttentionWeights(model.get_layer("encoderblock_1"))(tokens)
    assert_close(to_numpy(maps).sum(axis=-1), 1)
    assert maps.shape == (2, 2, 13, 13)


def test_compiled_training_is_that_of_one_large_window():
    """One window without other tokens is attention between all, to rounding."""
    after = []
    for window_size in (None, (3, 4)):
        model = random_design("ViTDet", classifier="gap", window_size=window_size, global_blocks=())
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.train_on_batch(images_for(model), np.ones((2, 3), "float32"))
        after.append(weights_by_path(model))
    for path, value in after[0].items():
        assert_close(after[1][path], value, name=path)
