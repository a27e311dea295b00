"""ImageNet-ReaL, compared with results computed by hand."""

import json

import numpy as np
import pytest

from vit_keras import evaluation

pytestmark = pytest.mark.once


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "real.json"
    path.write_text(json.dumps([[3], [], [0, 2], [1], [4, 0]]))
    return path


def test_images_without_labels_are_left_out(file):
    labels = evaluation.read_real_labels(file, 5, 5)
    assert labels == [{3}, set(), {0, 2}, {1}, {4, 0}]
    accuracy, images = evaluation.real_accuracy(np.array([3, 3, 2, 0, 0]), labels)
    assert (accuracy, images) == (0.75, 4)


def test_file_names_say_which_labels_are_whose(file):
    names = [f"/data/val/n01/ILSVRC2012_val_{n:08d}.JPEG" for n in (5, 3, 2)]
    assert evaluation.read_real_labels(file, 3, 5, names) == [{4, 0}, {0, 2}, set()]
    others = ["a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"]
    assert evaluation.read_real_labels(file, 5, 5, others)[0] == {3}
