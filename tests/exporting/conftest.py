"""One export, which several tests read."""

import types

import numpy as np
import pytest

from tests.exporting.builds import small_model
from tests.helpers import to_numpy
from tests.reference import softmax
from vit_keras import exporting, inspection
from vit_keras.models import Preprocessing


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """An export of a model in mixed precision, which replaced an earlier export.

    It has its folder and rows, images of it, and Keras' probabilities and rollouts in float32.
    """
    rng = np.random.default_rng(1)
    model = small_model(rng, 2, dtype="mixed_bfloat16", classifier="map")
    model.preprocessing = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    model.class_names = list("abcde")
    images = rng.integers(0, 256, (64, 8, 12, 3), dtype="uint8")
    plain = small_model(rng, 2, classifier="map")
    plain.set_weights(model.get_weights())
    prepared = ((images / 255 - [0.4, 0.5, 0.6]) / [0.2, 0.3, 0.4]).astype("float32")
    expected = softmax(to_numpy(plain(prepared)))
    margins = np.diff(np.sort(expected, axis=-1)[:, -2:], axis=-1)[:, 0]
    clear = margins.argsort()[-8:]  # rounding does not change the class of these images
    images, expected = images[clear], expected[clear]
    folder = tmp_path_factory.mktemp("export") / "out"
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    (folder / "stale.txt").write_text("from an earlier export")
    rows = exporting.export(
        model,
        folder,
        images=images,
        labels=expected.argmax(axis=-1),
        formats=["savedmodel", "litert", "onnx"],
        precisions=["fp32", "int8"],
        threads=(1,),
        attention=True,
    )
    rollout = inspection.attention_views(plain, prepared[clear]).rollout
    return types.SimpleNamespace(
        folder=folder, rows=rows, images=images, expected=expected, rollout=rollout
    )
