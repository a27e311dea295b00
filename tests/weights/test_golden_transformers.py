"""Golden folders of transformers give what its own classes compute, at other sizes too."""

import keras
import numpy as np
import pytest

import vit_keras
from tests.helpers import GOLDEN, assert_close
from vit_keras import models

FOLDERS = sorted(folder.name for folder in (GOLDEN / "families").glob("hf_*"))
# The folders whose `tokens` are not normalized: those of the last block.
LAST_BLOCK = ("hf_beit", "hf_clip_projection", "hf_clip_sparse_config")
pytestmark = pytest.mark.filterwarnings("ignore:.*DINOv3 License")


def read(name):
    with np.load(GOLDEN / "families" / name / "io.npz") as file:
        return dict(file)


def compute(model, images):
    """Compiled on JAX, where an operation at a time takes longer; TensorFlow is the other way."""
    compiled = keras.backend.backend() == "jax"
    return model.predict(images, verbose=0) if compiled else model(images)


@pytest.mark.parametrize("name", FOLDERS)
def test_outputs_equal_transformers(name):
    model, io = vit_keras.open(GOLDEN / "families" / name), read(name)
    ends = [key.removeprefix("images") for key in io if key.startswith("images")]
    for end in ends:
        images = io[f"images{end}"]
        sized = models.with_image_size(model, images.shape[1:3])
        outputs = compute(models.intermediates(sized), images)
        tokens = "encoderblock_1" if name in LAST_BLOCK else "encoder_norm"
        assert_close(outputs[tokens], io[f"tokens{end}"], name=end)
        for vector in ("logits", "pooled"):
            if f"{vector}{end}" in io:
                assert_close(outputs[sized.layers[-1].name], io[f"{vector}{end}"], name=end)


@pytest.mark.once
def test_every_golden_folder_is_there():
    assert len(FOLDERS) == 13
    shapes = {name: {key: x.shape for key, x in read(name).items()} for name in FOLDERS}
    vectors = [name for name in FOLDERS if {"logits", "pooled", "pooled_0"} & {*shapes[name]}]
    assert set(FOLDERS) - set(vectors) == {"hf_mae_pretraining"}
