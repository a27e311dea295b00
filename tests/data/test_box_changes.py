"""Boxes that change together with their pictures."""

import csv

import numpy as np
import pytest
from PIL import Image

from tests.data.box_pictures import COLUMNS, batches, in_corners
from tests.peers import peer
from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.boxes import object_window
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once


COLORS = 200 * np.array([(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)])  # of the objects, on black
CHANGES = {
    "none": {},
    "flip": {"flip": True},
    "inception": {"crop": "inception", "flip": True},
    "bit": {"crop": "bit", "flip": True},
    "objects": {"crop": "objects", "flip": True},
    "scale and shift": {"scale": 0.4, "shift": 0.15, "flip": True},
}


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Pictures of one rectangle in each quarter, of its own color, away from all edges."""
    root, rng = tmp_path_factory.mktemp("shapes"), np.random.default_rng(3)
    rows = []
    for number in range(8):
        pixels = np.zeros((80, 96, 3), "uint8")
        for kind, (top, left) in enumerate([(0, 0), (0, 48), (40, 0), (40, 48)]):
            y, x = top + rng.integers(6, 14), left + rng.integers(6, 18)
            height, width = rng.integers(10, 20), rng.integers(12, 24)
            pixels[y : y + height, x : x + width] = COLORS[kind]
            rows.append([f"{number}.png", x, y, x + width, y + height, f"c{kind}", "train"])
        Image.fromarray(pixels).save(root / f"{number}.png")
    with open(root / "rows.csv", "w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return data.load(f"table:{root / 'rows.csv'}", 3, DataConfig(test_percent=0)).split("train")


def compare_with_pixels(images, targets, slack_px):
    """Compares boxes with the pixels of the color of their object, and returns how many."""
    compared = 0
    for image, rows in zip(images, targets):
        size = np.array([image.shape[1], image.shape[0]] * 2)
        boxes = {int(row[0]): in_corners(row[1:5]) * size for row in rows if row[0] >= 0}
        for kind, color in enumerate(COLORS):
            alike = (abs(image - color) < 20).all(axis=-1)
            ys, xs = np.nonzero(alike)
            if kind in boxes:
                inner = boxes[kind] + [slack_px, slack_px, -slack_px, -slack_px]
                x0, y0, x1, y1 = inner.round().astype(int)
                if min(x1 - x0, y1 - y0) > 1:
                    assert alike[y0:y1, x0:x1].all()
            if len(ys) < 30:
                continue
            extent = np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1])
            cut = extent[[0, 1]].min() == 0 or (extent[2:] == size[:2]).any()
            if kind in boxes:
                assert abs(extent - boxes[kind]).max() <= slack_px
                compared += 1
            else:
                assert cut  # a whole object is never lost
    return compared


@pytest.mark.parametrize("change", CHANGES)
def test_boxes_change_as_their_pictures_do(shapes, change):
    images, targets = batches(shapes, CHANGES[change])
    assert targets.shape == (48, 4, 5) and targets.dtype == np.float32
    assert compare_with_pixels(images, targets, 4.5) > 40


@pytest.mark.parametrize("fraction", [None, 0.6])
def test_an_evaluation_has_the_boxes_of_what_the_model_sees(shapes, fraction):
    preprocessing = Preprocessing(mean=(0.0,), std=(1 / 255,), crop_fraction=fraction)
    (images, labels), = data.eval_batches(
        shapes, image_size=(120, 120), preprocessing=preprocessing, batch=8
    )  # fmt: skip
    assert labels.shape == (8, 4, 6)
    assert compare_with_pixels(images, labels, 2.5) > 10


def test_crops_around_objects_are_those_of_torchvision():
    """The share of whole pictures, and the mean sides of the others, of many draws."""
    torch, tv_tensors = map(peer, ("torch", "torchvision.tv_tensors"))
    v2 = peer("torchvision.transforms.v2")
    height, width, draws = 90, 120, 300
    corners = np.array([[10, 12, 50, 70], [60, 5, 112, 40], [80, 60, 96, 82.0]])
    drawn = {"theirs": [], "ours": []}
    boxes = tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=(height, width))
    torch.manual_seed(0)
    for _ in range(draws):
        made = v2.RandomIoUCrop().make_params(
            [boxes, tv_tensors.Image(torch.zeros(3, height, width))]
        )
        drawn["theirs"].append((made.get("height", height), made.get("width", width)))
    shares = corners / [width, height, width, height]
    label = np.zeros((4, 6), "float32")
    label[:, 0] = [0, 1, 2, -1]
    label[:3, 1:5] = np.hstack([(shares[:, :2] + shares[:, 2:]) / 2, shares[:, 2:] - shares[:, :2]])
    rng = np.random.default_rng(0)
    for _ in range(draws):
        top, left, h, w = object_window((height, width), label, rng)
        assert 0 <= top <= height - h and 0 <= left <= width - w
        x, y = (corners[:, :2] + corners[:, 2:]).T / 2
        center = np.stack([x - left, y - top], axis=1)
        assert ((center > -1e-4) & (center < np.array([w, h]) + 1e-4)).all(axis=1).any()
        drawn["ours"].append((h, w))
    whole, sides = {}, {}
    for name, sizes in drawn.items():
        sizes = np.array(sizes, float)
        is_whole = (sizes == [height, width]).all(axis=1)
        whole[name], sides[name] = (
            is_whole.mean(),
            (sizes[~is_whole] / [height, width]).mean(axis=0),
        )
    assert abs(whole["ours"] - whole["theirs"]) < 0.08  # 3 deviations of the difference
    np.testing.assert_allclose(sides["ours"], sides["theirs"], atol=0.04)
    assert object_window((40, 30), np.full((2, 6), -1, "float32"), rng) == (0, 0, 40, 30)
