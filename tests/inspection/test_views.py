"""Figures show the numbers that they are given, and the command draws them."""

import numpy as np
import pytest
from PIL import Image

import vit_keras
from tests.helpers import assert_close, randomize, write_picture
from vit_keras import data, inspection
from vit_keras.commands import run
from vit_keras.inspection import views
from vit_keras.models import VisionTransformer, segmenter, with_image_size
from vit_keras.support import figures
from vit_keras.support.tasks import KINDS, Task
from vit_keras.weights import save_model

pytestmark = pytest.mark.on("torch")

SMALL = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 40, "num_classes": 2}


def test_the_script_draws_all_views_of_a_checkpoint(tmp_path, capsys, rng):
    pictures = [tmp_path / f"{name}.png" for name in ("cat", "dog")]
    for path in pictures:
        write_picture(path, rng, (20, 30))
    model = randomize(VisionTransformer(16, 4, **SMALL), np.random.default_rng(2), scale=0.2)
    model.class_names = ("cat", "dog")
    model.save(tmp_path / "model.keras")
    out = tmp_path / "out"
    options = ["--image-size", "8", "16", "--out", str(out)]
    run(["visualize", str(tmp_path / "model.keras"), *map(str, pictures), *options])
    assert "2 images of 8x16 pixels" in capsys.readouterr().out
    names = {path.name for path in out.iterdir()}
    assert names == {f"{view}.png" for view in inspection.VIEWS} | {"arrays.npz"}
    for view in inspection.VIEWS:
        assert np.asarray(Image.open(out / f"{view}.png").convert("L")).std() > 5  # not blank
    model = with_image_size(vit_keras.open(tmp_path / "model.keras"), (8, 16))
    resized = [
        data.resize(data.read_image(path, 3), (8, 16), model.preprocessing) for path in pictures
    ]
    images = np.asarray(data.normalize(np.stack(resized), model.preprocessing))
    expected = inspection.attention_views(model, images)
    with np.load(out / "arrays.npz") as arrays:
        assert_close(arrays["attention_distance/pixels"], expected.distance_px, rtol=2e-6)
        assert_close(arrays["attention_rollout/mean"], expected.rollout)
        assert arrays["position_similarity/cosine"].shape == (2, 4, 2, 4)


def test_the_script_takes_images_of_a_data_set(tmp_path, capsys):
    model = randomize(
        VisionTransformer(8, 4, **SMALL, channels=1), np.random.default_rng(2), scale=0.2
    )
    model.save(tmp_path / "model.keras")
    arguments = ["--dataset", "digits", "--count", "5", "--show", "2", "--heads", "max"]
    arguments += ["--views", "attention_rollout", "--out", str(tmp_path / "out")]
    run(["visualize", str(tmp_path / "model.keras"), *arguments])
    assert "digits: 5 images of 8x8 pixels" in capsys.readouterr().out
    with np.load(tmp_path / "out" / "arrays.npz") as arrays:
        assert arrays.files == ["attention_rollout/max"]
        assert arrays["attention_rollout/max"].shape == (5, 2, 2)


@pytest.mark.parametrize("kind", ["numbers", "masks"])
def test_pictures_are_named_by_file_where_no_class_has_a_probability(
    tmp_path, monkeypatch, rng, kind
):
    model = VisionTransformer(16, 4, **SMALL | {"num_classes": None if kind == "masks" else 2})
    model = segmenter(model, 2) if kind == "masks" else model
    randomize(model, rng).class_names, model.task = ("age", "size"), Task(kind)
    save_model(model, tmp_path / "model.keras")
    write_picture(tmp_path / "cat.png", rng)
    drawn = []
    monkeypatch.setattr(views, "save_figure", lambda figure, path: drawn.append(figure))
    options = ["--views", "attention_rollout", "--out", str(tmp_path / "out")]
    run(["visualize", str(tmp_path / "model.keras"), str(tmp_path / "cat.png"), *options])
    assert drawn[0].axes[0].get_ylabel() == "cat"


def test_a_confusion_matrix_counts_true_classes_down_and_predictions_across(monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: drawn.append(figure))
    figures.confusion([[5, 1], [0, 4]], ["cat", "dog"], "nowhere")
    axis = drawn[0].axes[0]
    counts = {text.get_position(): text.get_text() for text in axis.texts}
    assert counts == {(0, 0): "5", (1, 0): "1", (1, 1): "4"}
    assert axis.get_title() == "90.00% of 10 images"
    assert [label.get_text() for label in axis.get_xticklabels()] == ["cat", "dog"]


@pytest.mark.parametrize("kind", KINDS)
def test_curves_show_the_metric_of_each_kind(monkeypatch, kind):
    drawn = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: drawn.append(figure))
    rows = [{"step": n, "loss": 1.0, f"val_{KINDS[kind].metric}": n / 4} for n in (1, 2)]
    figures.curves(rows, "nowhere")
    _, axis = drawn[0].axes
    assert "50" in axis.get_title() and axis.lines[0].get_label() == "held out"


def test_a_label_without_positives_has_no_bar(monkeypatch):
    drawn, none = [], {"average_precision": None, "f1": None}
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: drawn.append(figure))
    rows = [{"name": "cat", "positives": 3, "average_precision": 0.75, "f1": 0.5}]
    figures.label_bars([*rows, {"name": "dog", "positives": 0, **none}], "nowhere")
    axis = drawn[0].axes[0]
    np.testing.assert_equal([bar.get_width() for bar in axis.patches], [75, np.nan])
    np.testing.assert_equal(axis.lines[0].get_xdata(), [50, np.nan])


def test_a_class_keeps_its_dollars_and_a_logarithmic_axis_its_powers(tmp_path):
    figure, ((axis,),) = figures.new_figure(4, 3)
    axis.set(title="$5$", yscale="log", ylim=(1, 1e5))
    figures.save_figure(figure, tmp_path / "figure.png")
    powers = [label for label in axis.get_yticklabels() if "^" in label.get_text()]
    assert powers and all(label.get_parse_math() for label in powers)
    assert not axis.title.get_parse_math()
