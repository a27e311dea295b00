"""The numbers behind the pictures of docs/inspection.md equal loops over patches."""

import numpy as np
import pytest

from tests.helpers import assert_close, randomize
from tools import pictures
from vit_keras import models

pytestmark = pytest.mark.on("torch")


def test_attention_of_patches_leaves_out_the_class_token(rng):
    model = randomize(models.VisionTransformer((8, 12), 4, 16, 2, 2, 32, 3), rng)
    images = rng.normal(size=(2, 8, 12, 3)).astype("float32")
    attention = models.attention_maps(model).predict(images, verbose=0)
    heads = attention[:, pictures.BLOCK, :, 1:, 1:].sum(axis=1)
    expected = heads / heads.sum(axis=-1, keepdims=True)
    assert_close(pictures.patch_attention(model, images), expected)


def test_the_share_of_attention_to_shapes_is_printed(capsys):
    shapes = np.array([[1.0, 0.0, 0.5, 0.0]])
    attention = np.array([[[0.6, 0.2, 0.2, 0], [0.1, 0.9, 0, 0], [1, 0, 0, 0], [0, 0.5, 0, 0.5]]])
    pictures.print_shares(attention, shapes)
    assert capsys.readouterr().out.splitlines() == [
        "shapes cover 37.5% of 1 pictures",
        "patches on shapes give 70.0% of their attention to shapes",
        "patches elsewhere give 5.0% of their attention to shapes",
    ]
    on, off = pictures.middle_patches(shapes[0], (1, 4))
    assert (on, off) == (0, 3)
