"""TensorBoard and trackers receive the rows, images and attention maps of a run."""

import io
import sys
import types

import keras
import numpy as np
import pytest
from PIL import Image

from tests.helpers import assert_close, randomize, to_numpy
from tests.training.small import small_batches, small_config, small_run
from vit_keras import models
from vit_keras.models import VisionTransformer
from vit_keras.runs import Run
from vit_keras.training.loop import TensorBoard

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


@pytest.mark.parametrize("classifier", ["token", "gap"])
def test_attention_of_held_out_pictures(tmp_path, rng, classifier):
    model = VisionTransformer(8, 4, 12, 2, 3, 20, 5, channels=1, classifier=classifier)
    randomize(model, rng, scale=1.0)
    pictures = rng.normal(size=(2, 8, 8, 1)).astype("float32")
    run = Run(tmp_path, small_config(tmp_path, watch_every=2))
    board = TensorBoard(run, model, [(pictures, None)])
    rows = [{"step": step, "loss": 1.0} for step in (3, 6, 9)]
    for count in (1, 2, 3):
        board.write(rows[:count])
    shown = events(tmp_path / "tensorboard" / "train")["attention/0"]
    assert list(shown) == [6]  # every second evaluation
    maps = to_numpy(models.attention_maps(model)(pictures)).astype("float64")
    mixed = [0.5 * maps[0, i].mean(0) + 0.5 * np.eye(maps.shape[-1]) for i in range(2)]
    expected = mixed[1] @ mixed[0]
    assert_close(models.attention_rollout(maps)[0, 0], expected[0], rtol=1e-6)
    heat = expected[0][-4:].reshape(2, 2)
    heat = (heat - heat.min()) / (heat.max() - heat.min())
    light = (pictures[0] - pictures[0].min()) / (pictures[0].max() - pictures[0].min())
    decoded = decoded_png(shown[6][2])[..., 0]
    corners = np.ix_([0, 7], [0, 7])  # which a resize leaves as they are
    np.testing.assert_allclose(decoded[corners], light[..., 0][corners] * heat, atol=0.005)
