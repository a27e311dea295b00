"""Models of the same layers for images of two sizes, as self-distillation needs them."""

import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy
from vit_keras.models import VisionTransformer, with_image_size
from vit_keras.models.self_distillation import with_shared_layers

pytestmark = pytest.mark.on("torch")


def encoder(num_layers=1, **fields):
    return VisionTransformer((8, 12), 4, 12, num_layers, 3, 20, 5, seed=3, **fields)


@pytest.mark.parametrize("kind", ["learned", "learned_2d", "sincos2d", "shared"])
@pytest.mark.parametrize("classifier", ["token", "gap"])
def test_local_views_see_interpolated_positions(rng, classifier, kind):
    """A learned table is interpolated as `with_image_size` does it; a fixed one as well."""
    place = {"position_embedding_at": kind} if kind == "shared" else {"position_embedding": kind}
    base = randomize(encoder(classifier=classifier, num_layers=2, **place), rng)
    images = rng.normal(size=(2, 12, 16, 3)).astype("float32")
    outputs = to_numpy(with_shared_layers(base, (12, 16))(images))
    if kind != "sincos2d":
        resized = with_image_size(base, (12, 16), "bicubic")
        assert_close(outputs, resized(images))
    same = images[:, :8, :12]
    same_outputs = to_numpy(with_shared_layers(base, (8, 12))(same))
    assert_close(same_outputs, base(same))
    assert np.abs(outputs - same_outputs).max() > 1e-2


@pytest.mark.parametrize("kind", ["relative", "rope2d"])
def test_positions_in_the_attention_have_no_other_size(kind):
    with pytest.raises(ValueError, match=f"positions are added.*Received: positions '{kind}'"):
        with_shared_layers(encoder(position_embedding=kind), (8, 8))
