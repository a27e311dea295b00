"""TensorBoard and trackers receive the rows and images of a run."""

import io
import sys
import types

import keras
import numpy as np
import pytest
from PIL import Image

from tests.training.small import small_batches, small_config, small_run

pytestmark = pytest.mark.on("torch")


def events(folder):
    """Reads event files as `{tag: {step: value}}`; the value of an image is its bytes."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    values = {}
    for path in sorted(folder.glob("*tfevents*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                array = make_ndarray(value.tensor)
                values.setdefault(value.tag, {})[event.step] = array
    return values


def decoded_png(data):
    """The pixels `(H, W, C)` of a PNG file, in [0, 1]."""
    pixels = np.array(Image.open(io.BytesIO(data))) / 255
    return pixels.reshape(*pixels.shape[:2], -1)


class Logger(keras.callbacks.Callback):
    """Stands for a tracker's own callback."""

    rows = ()

    def on_epoch_end(self, epoch, logs=None):
        type(self).rows = [*self.rows, logs]


def test_rows_and_training_images(tmp_path, monkeypatch):
    monkeypatch.setattr(Logger, "rows", ())
    package, integration = types.ModuleType("mlflow"), types.ModuleType("mlflow.keras")
    package.start_run, integration.MlflowCallback = lambda run_name: None, Logger
    for module in (package, integration):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    _, _, rows = small_run(tmp_path, tracker="mlflow")
    assert [logs["val_loss"] for logs in Logger.rows] == [row["val_loss"] for row in rows]
    train, validation = (events(tmp_path / "tensorboard" / n) for n in ("train", "validation"))
    names = [(name, name, train) for name in ("learning_rate", "gradient_norm", "weight_norm")]
    for name in ("loss", "accuracy"):
        names += [(name, name, train), (name, f"val_{name}", validation)]
    for tag, name, shown in names:
        expected = {row["step"]: pytest.approx(row[name], rel=1e-6) for row in rows}
        assert {step: float(value) for step, value in shown[tag].items()} == expected
    (shown,) = train["augmented/0"].values()
    images = np.array(next(iter(small_batches(small_config(tmp_path))(0)))[0])
    low, high = images[0].min(), images[0].max()
    decoded = decoded_png(shown[2])  # after its height and width
    np.testing.assert_allclose(decoded, (images[0] - low) / (high - low), atol=0.005)
