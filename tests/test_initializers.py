"""Initial values follow the published distributions, with the same numbers for the same seed."""

import numpy as np
import pytest

from tests.helpers import to_numpy, weights_by_path
from vit_keras.layers import base
from vit_keras.models import VisionTransformer


def test_distributions_are_the_named_ones():
    uniform = to_numpy(base.xavier_uniform(300, 100, seed=1)((200, 500)))
    limit = np.sqrt(6 / 400)
    assert abs(np.abs(uniform).max() - limit) < 1e-4 * limit
    assert uniform.std() == pytest.approx(limit / np.sqrt(3), rel=0.01)
    lecun = to_numpy(base.lecun_normal(25, seed=2)((200, 500)))
    assert lecun.std() == pytest.approx(1 / 5, rel=0.01)  # the truncation is made up for
    assert np.abs(lecun).max() == pytest.approx(2 / 5 / 0.87962566, rel=0.01)
    normal = to_numpy(base.Normal(0.02, seed=3)((200, 500)))
    assert normal.std() == pytest.approx(0.02, rel=0.01)
    assert np.abs(normal).max() > 0.02 * 3.5


def test_initial_weights_are_the_published_codes():
    model = VisionTransformer(16, 4, 64, 2, 4, 96, 10, representation_size=32, seed=5)
    weights = weights_by_path(model)
    block = "encoderblock_1"
    std = {
        "embedding/kernel": np.sqrt(1 / (4 * 4 * 3)),
        "posembed_input/pos_embedding": 0.02,
        f"{block}/MultiHeadDotProductAttention_1/query/kernel": np.sqrt(2 / 128),
        f"{block}/MultiHeadDotProductAttention_1/out/kernel": np.sqrt(2 / 128),
        f"{block}/MlpBlock_3/Dense_0/kernel": np.sqrt(2 / 160),
        f"{block}/MlpBlock_3/Dense_1/bias": 1e-6,
        "pre_logits/kernel": np.sqrt(1 / 64),
    }
    for name, expected in std.items():
        assert weights[name].std() == pytest.approx(expected, rel=0.15), name
    for name in ("cls/cls", "head/kernel", "head/bias", "embedding/bias", "pre_logits/bias"):
        assert not weights[name].any(), name
    kernels = [w for name, w in weights.items() if name.endswith("query/kernel")]
    assert not np.array_equal(*kernels)  # each block draws its own
