"""Errors about missing packages name the extra that installs them."""

import sys

import numpy as np
import pytest

from tests.helpers import run_script
from vit_keras import data, evaluation
from vit_keras.config import DataConfig

pytestmark = pytest.mark.once

WITHOUT_EXTRAS = """
import sys
for name in ("tensorflow", "tensorflow_datasets", "PIL", "pyarrow", "sklearn", "keras_cv"):
    sys.modules[name] = None
import numpy as np
from vit_keras import data, evaluation, models
model = models.VisionTransformer(8, 4, 12, 1, 3, 20, 3)
images = data.normalize(np.zeros((1, 8, 8, 3), "float32"), model.preprocessing)
print(evaluation.probabilities(model, images).shape)
for attempt in (lambda: data.load("digits", 1), lambda: data.read_image("README.md", 3)):
    try:
        attempt()
    except ImportError as error:
        print(error)
"""


def test_rooms_are_imported_without_any_extra():
    lines = run_script("-c", WITHOUT_EXTRAS, backend="jax").stdout.splitlines()
    assert lines == [
        "(1, 3)",
        'The digits data set needs scikit-learn: pip install "vit-keras[data]"',
        'Reading pictures needs pillow: pip install "vit-keras[data]"',
    ]


@pytest.fixture
def hide(monkeypatch):
    """Hides an installed package, as if it were not installed."""

    def hide(package):
        loaded = [name for name in sys.modules if name.startswith(f"{package}.")]
        for name in (package, *loaded):
            monkeypatch.setitem(sys.modules, name, None)

    return hide


def predictions_file(tmp_path):
    probabilities = np.array([[0.25, 0.75]], "float32")
    evaluation.write_predictions(tmp_path / "a.parquet", probabilities, np.array([1]))


def made(path):
    path.touch()
    return path


@pytest.mark.parametrize(
    ("package", "attempt", "message", "extra"),
    [
        (
            "sklearn",
            lambda _: data.load("digits", 1),
            "The digits data set needs scikit-learn",
            "data",
        ),
        (
            "tensorflow_datasets",
            lambda _: data.load("tfds:mnist", 1, DataConfig()),
            "Reading TensorFlow Datasets needs tensorflow-datasets",
            "tfds",
        ),
        (
            "pyarrow",
            lambda folder: data.load(f"table:{made(folder / 'a.parquet')}", 3),
            "Reading Parquet tables of images needs pyarrow",
            "tables",
        ),
        (
            "pyarrow",
            predictions_file,
            "Writing a Parquet file needs pyarrow",
            "tables",
        ),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    hide, tmp_path, package, attempt, message, extra
):
    hide(package)
    with pytest.raises(ImportError, match=rf'{message}: pip install "vit-keras\[{extra}\]"'):
        attempt(tmp_path)
