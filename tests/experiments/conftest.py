"""A checkpoint that several tests of experiments start from."""

import numpy as np
import pytest

from tests.helpers import randomize
from vit_keras.models import VisionTransformer
from vit_keras.weights import save


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A small model for 32x32 pixels, in a file of Google's format."""
    model = VisionTransformer(32, 8, 24, 2, 3, 40, 7, classifier="gap", gelu="tanh")
    randomize(model, np.random.default_rng(0))
    folder = tmp_path_factory.mktemp("weights")
    save(model, folder / "vit.npz", format="google")
    return folder / "vit.npz"
