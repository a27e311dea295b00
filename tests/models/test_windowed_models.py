"""Models with windows of attention at another size, and what needs all tokens."""

import numpy as np
import pytest

from tests.designs import random_design
from tests.helpers import assert_close, randomize
from vit_keras import exporting, inspection, models
from vit_keras.models import VisionTransformer

pytestmark = pytest.mark.on("torch")  # tests/layers/test_windows.py is on every backend

SIZES = {"hidden_size": 16, "num_layers": 3, "num_heads": 2, "mlp_dim": 32, "num_classes": None}


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
    assert resized.get_layer("encoderblock_0").attention.windows.counts == (3, 3)
    assert resized.get_layer("encoderblock_2").attention.windows is None


def test_what_needs_all_tokens_refuses_windows(tmp_path):
    model = random_design("ViTDet")
    message = "that attend to all tokens. Received: model .*encoderblock_0 attend within windows"
    with pytest.raises(ValueError, match=f"Attention maps need a .* {message}"):
        models.attention_maps(model)
    with pytest.raises(ValueError, match=f"Outputs of attention need a .* {message}"):
        exporting.for_inference(model, with_attention=True)
    with pytest.raises(ValueError, match="neither positions nor windows. Received"):
        exporting.for_inference(model, token_merging=1)
    views = "filters, position_similarity, features"
    assert inspection.views_of(model) == views.split(", ")
    with pytest.raises(ValueError, match=f"layers that attend to all tokens.*views {views}"):
        inspection.views_of(model, ["attention_rollout"])
