"""Averages over views of answers that have a place: maps are turned back before they are added."""

import numpy as np
import pytest
from PIL import Image

from tests.helpers import randomize, to_numpy
from vit_keras import commands, evaluation
from vit_keras.evaluation.predictors import Predictor, softmax
from vit_keras.models import Preprocessing, VisionTransformer, segmenter
from vit_keras.support.resizing import INTERPOLATIONS
from vit_keras.support.tasks import Task
from vit_keras.weights import save_model

SIZE, NAMES = (8, 12), ("ground", "house", "tree")
# Pictures of the model's size, larger and smaller ones, with odd sides.
SIZES = [(8, 12), (21, 17), (9, 33), (5, 7), (30, 12)]
VIEWS = [["flip"], ["flip", "crops"]]


def segmenter_of(channels, decoder="multilevel"):
    sizes = {"hidden_size": 12, "num_layers": 1, "num_heads": 2, "mlp_dim": 16}
    encoder = VisionTransformer(SIZE, 4, **sizes, num_classes=None, channels=channels)
    rng = np.random.default_rng(channels)
    model = randomize(segmenter(encoder, 3, decoder, width=8), rng)
    noise = rng.normal(size=(8, *model.input_shape[1:])).astype("float32")
    bias = model.get_layer("head").bias  # so that each class is the most likely somewhere
    bias.assign(bias - to_numpy(model(noise)).mean(axis=(0, 1, 2)))
    model.task, model.class_names = Task("masks"), list(NAMES)
    return model


@pytest.fixture(scope="module", params=[1, 3])
def model(request):
    return segmenter_of(request.param)


def assert_equivariant(predictor, rng, sizes=SIZES):
    """A mirrored picture has the mirrored mask, and a mirrored image the mirrored map."""
    channels = predictor.input_shape[-1]
    images = rng.normal(size=(3, *SIZE, channels)).astype("float32")
    if predictor.preprocessing.std[0] < 0.1:  # the file takes pixels
        images = rng.integers(0, 256, images.shape).astype("float32")
    pictures = [rng.integers(0, 256, (*size, channels), dtype="uint8") for size in sizes]
    for views in VIEWS:
        averaged = evaluation.with_views(predictor, views)
        maps = [averaged.run(x) for x in (images, images[:, :, ::-1])]
        np.testing.assert_array_equal(maps[0], maps[1][:, :, ::-1])
        np.testing.assert_allclose(maps[0].sum(axis=-1), 1, rtol=1e-5)
        for tiles in (False, True):
            options = evaluation.TileOptions(tiles=tiles, overlap=0.3, batch=4)
            for picture in pictures:
                one, other = (
                    evaluation.predict_mask(averaged, x, options)
                    for x in (picture, picture[:, ::-1])
                )
                np.testing.assert_array_equal(one, other[:, ::-1])
                assert len(np.unique(one)) > 1


def test_a_mirrored_picture_has_the_mirrored_mask(model, rng):
    predictor = evaluation.make_predictor(model)
    assert_equivariant(predictor, rng)
    picture = rng.integers(0, 256, (21, 17, model.input_shape[-1]), dtype="uint8")
    one, other = (evaluation.predict_mask(predictor, x) for x in (picture, picture[:, ::-1]))
    assert (one != other[:, ::-1]).mean() > 0.01  # the model alone is not symmetric


@pytest.mark.once
@pytest.mark.parametrize("tiles", [[], ["--tiles", "--overlap", "0.4"]], ids=["resized", "tiles"])
def test_the_command_writes_mirrored_masks(tmp_path, rng, tiles):
    save_model(segmenter_of(3), tmp_path / "model.keras")
    names = [f"{number}.png" for number in range(len(SIZES))]
    masks = []
    for step in (1, -1):
        out = tmp_path / f"out{step}"
        out.mkdir()
        for number, (name, size) in enumerate(zip(names, SIZES)):
            pixels = np.random.default_rng(number).integers(0, 256, (*size, 3), dtype="uint8")
            Image.fromarray(pixels[:, ::step]).save(out / name)
        pictures = [str(out / name) for name in names]
        views = ["--tta", "crops", "flip", *tiles, "--out", str(out)]
        commands.run(["predict", str(tmp_path / "model.keras"), *pictures, *views])
        masks.append([np.asarray(Image.open(out / "masks" / name)) for name in names])
    for one, other in zip(*masks):
        np.testing.assert_array_equal(one, other[:, ::-1])
    assert len({*np.concatenate([mask.ravel() for mask in masks[0]])}) == 3


def masks_of(function, size):
    plain, shape = Preprocessing(mean=(0.0,), std=(1 / 255,)), (*size, 1)
    return Predictor(function, shape, 3, plain, False, NAMES, task=Task("masks"))


@pytest.mark.once
@pytest.mark.parametrize("size", [(16, 24), (15, 11), (9, 21)])
def test_maps_of_crops_are_averaged_where_they_lie(rng, size):
    """The logits depend on the place in the view, so each view has another answer."""
    place = rng.normal(size=(*size, 3)).astype("float32")
    predictor = masks_of(lambda images: place * images, size)
    images = rng.uniform(0, 1, (2, *size, 1)).astype("float32")
    received = evaluation.with_views(predictor, ["crops"]).run(images)
    rule = INTERPOLATIONS["bilinear_half_pixel"]
    sides = [round(side * 7 / 8) for side in size]
    larger = [rule(old, new) for old, new in zip(sides, size)]
    smaller = [rule(old, new) for old, new in zip(size, sides)]
    resize = lambda x, rules: np.einsum("ih,jw,bhwk->bijk", *rules, x)
    free = [side - crop for side, crop in zip(size, sides)]
    corners = [(0, 0), (0, free[1]), (free[0], 0), free, (free[0] // 2, free[1] // 2)]
    sums, counts = softmax(place * images), np.ones(size)
    for top, left in corners:
        crop = images[:, top : top + sides[0], left : left + sides[1]]
        answer = resize(softmax(place * resize(crop, larger)), smaller)
        for y in range(sides[0]):
            for x in range(sides[1]):
                sums[:, top + y, left + x] += answer[:, y, x]
                counts[top + y, left + x] += 1
    assert counts.min() == 2 and counts.max() == 6
    np.testing.assert_allclose(received, sums / counts[..., None], atol=1e-5)
