"""A small model in a file."""

import numpy as np
import pytest

from tests.helpers import randomize
from vit_keras.models import VisionTransformer
from vit_keras.weights import save_model


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    model = VisionTransformer(16, 8, 24, 2, 3, 40, 4, name="small")
    randomize(model, np.random.default_rng(0))
    model.class_names = ["cat", "dog, small", '<i>"owl"</i> & co', "a very long name of a class"]
    file = tmp_path_factory.mktemp("small") / "small.keras"
    save_model(model, file)
    return str(file)
