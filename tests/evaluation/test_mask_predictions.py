"""Judges, predicts and draws masks: beside scikit-learn, and formulas for tiles."""

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import accuracy_score, confusion_matrix, jaccard_score, recall_score

from tests.data.mask_pictures import write_folder
from vit_keras import data, evaluation
from vit_keras.evaluation.mask_prediction import (
    judge_masks,
    palette,
    pixel_matrix,
    report_matrix,
    starts,
)
from vit_keras.evaluation.predictors import Predictor
from vit_keras.evaluation.reports import draw_report, headline, report_table
from vit_keras.models import Preprocessing
from vit_keras.support.interpolation import INTERPOLATIONS
from vit_keras.support.tasks import VOID, Task

pytestmark = pytest.mark.once
NAMES = ("ground", "house", "tree")
TASK = Task("masks")


def predictor_of(function, size=(16, 12), gives_probabilities=False):
    """A predictor of masks whose logits are a function of pixels `(B, H, W, 1)` in [0, 255]."""
    plain = Preprocessing(mean=(0.0,), std=(1 / 255,))
    shape = (*size, 1)
    return Predictor(function, shape, 3, plain, gives_probabilities, NAMES, task=TASK)


def by_gray(images):
    """The logits of three classes, at grays of 0, 80 and 160."""
    return -((images - np.array([0, 80, 160.0])) ** 2) / 1000


def test_a_report_equals_scikit_learn(rng):
    true = rng.choice([0, 1, 2, VOID], size=(5, 8, 7), p=[0.4, 0.2, 0.2, 0.2])
    logits = rng.normal(size=(5, 8, 7, 3))
    known = true != VOID
    flat, predicted = true[known], logits.argmax(axis=-1)[known]
    metrics = report_matrix(pixel_matrix(true, logits.argmax(axis=-1), 3), NAMES, images=5)
    assert metrics["confusion_matrix"] == confusion_matrix(flat, predicted).tolist()
    assert metrics["miou"] == pytest.approx(jaccard_score(flat, predicted, average="macro"))
    each = jaccard_score(flat, predicted, average=None)
    assert [row["iou"] for row in metrics["masks"]] == pytest.approx(each)
    assert metrics["pixel_accuracy"] == pytest.approx(accuracy_score(flat, predicted))
    recall = recall_score(flat, predicted, average="macro")
    assert metrics["mean_class_accuracy"] == pytest.approx(recall)
    assert f"mean IoU {100 * metrics['miou']:.2f}%" in headline(metrics)
    lines = report_table(metrics).splitlines()
    assert lines[2].split()[:2] == ["house", str((flat == 1).sum())]


def test_a_picture_is_resized_and_its_logits_are_resized_back(rng):
    picture = rng.integers(0, 256, (40, 31, 1), dtype="uint8")
    predictor = predictor_of(by_gray)
    small = data.resize(picture, (16, 12), predictor.preprocessing)
    rule = INTERPOLATIONS["bilinear_half_pixel"]
    rows, columns = rule(16, 40), rule(12, 31)
    expected = np.einsum("ih,jw,hwk->ijk", rows, columns, by_gray(small)).argmax(axis=-1)
    mask = evaluation.predict_mask(predictor, picture)
    assert mask.dtype == np.uint8 and (mask == expected).mean() > 0.999  # but for ties
    pictures = [picture, picture[:9], picture[:, :20]]
    several = evaluation.predict_masks(predictor, pictures, evaluation.TileOptions(batch=2))
    for one, other in zip(pictures, several, strict=True):
        np.testing.assert_array_equal(other, evaluation.predict_mask(predictor, one))


@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.6])
@pytest.mark.parametrize("size", [(40, 31), (16, 12), (10, 30)])
def test_tiles_cover_a_picture_and_their_logits_are_averaged(rng, size, overlap):
    """The logits depend on the place in the tile, so that each average is another."""
    place = rng.normal(size=(16, 12, 3))
    predictor = predictor_of(lambda images: place * images)
    picture = rng.integers(1, 256, (*size, 1), dtype="uint8")
    options = evaluation.TileOptions(tiles=True, overlap=overlap, batch=4)
    mask = evaluation.predict_mask(predictor, picture, options)
    tops, lefts = (starts(max(s, t), t, overlap) for s, t in zip(size, (16, 12)))
    for y, x in rng.integers(0, size, (60, 2)):
        inside = [
            place[y - top, x - left]
            for top in tops
            for left in lefts
            if 0 <= y - top < 16 and 0 <= x - left < 12
        ]
        assert inside and mask[y, x] == np.mean(inside, axis=0).argmax()


def test_a_split_is_judged_at_the_size_of_each_picture(tmp_path):
    """Grays tell the classes of these pictures, so that tiles of the model's size are right."""
    split = data.load(f"folder:{write_folder(tmp_path)}", 1).split("test")
    predictor = predictor_of(by_gray)
    tiled = judge_masks(predictor, split, NAMES, evaluation.TileOptions(tiles=True))
    assert tiled["miou"] == 1 and tiled["images"] == 4
    assert np.sum(tiled["confusion_matrix"]) == 4 * 40 * 32
    resized = judge_masks(predictor, split, NAMES)
    assert 0.6 < resized["miou"] < 1  # a gray of one class lies between those of two others
    pictures, masks = zip(*map(split.example, range(4)))
    predicted = [evaluation.predict_mask(predictor, picture) for picture in pictures]
    pixels = (np.concatenate([x.ravel() for x in each]) for each in (masks, predicted))
    assert resized["miou"] == pytest.approx(jaccard_score(*pixels, average="macro"))
    files = draw_report(resized, tmp_path, "drawn")
    assert [file.name for file in files] == ["confusion.png"] and files[0].stat().st_size > 1000


def test_masks_and_overlays_are_written(tmp_path, rng):
    picture = rng.integers(0, 256, (6, 5, 1), dtype="uint8")
    mask = rng.choice([0, 1, 2, VOID], size=(6, 5)).astype("uint8")
    files = evaluation.write_mask(tmp_path, "street.jpg", picture, mask)
    assert files == [tmp_path / "masks" / "street.png", tmp_path / "overlays" / "street.png"]
    with Image.open(files[0]) as written:
        assert written.mode == "P"
        np.testing.assert_array_equal(np.asarray(written), mask)
        np.testing.assert_array_equal(np.asarray(written.convert("RGB")), palette()[mask])
    colored = np.asarray(Image.open(files[1]))
    for number in (0, VOID):
        np.testing.assert_array_equal(colored[mask == number], picture[mask == number].repeat(3, 1))
    halfway = picture[mask == 2] / 2 + palette()[2] / 2
    np.testing.assert_allclose(colored[mask == 2], halfway, atol=0.51)
