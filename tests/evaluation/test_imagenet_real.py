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


def test_what_does_not_fit_is_named(file, tmp_path):
    with pytest.raises(FileNotFoundError, match="no ReaL labels at '.*nowhere.json'"):
        evaluation.read_real_labels(tmp_path / "nowhere.json", 5, 5)
    with pytest.raises(ValueError, match="one list of labels for each image.*5 lists for 6 images"):
        evaluation.read_real_labels(file, 6, 5)
    with pytest.raises(ValueError, match="5 lists for 4 images"):
        evaluation.read_real_labels(file, 4, 5)
    with pytest.raises(ValueError, match="5 lists for 9 images"):
        evaluation.read_real_labels(file, 1, 5, ["ILSVRC2012_val_00000009.JPEG"])
    with pytest.raises(ValueError, match="TensorFlow Datasets does not keep in order"):
        evaluation.read_real_labels(
            file, 5, 5, [f"tfds:imagenet2012 validation[{i}]" for i in range(5)]
        )
    with pytest.raises(ValueError, match=r"must lie in \[0, 3\).*Received: \[3, 4\]"):
        evaluation.read_real_labels(file, 5, 3)
    with pytest.raises(ValueError, match="At least one image must have a ReaL label"):
        evaluation.real_accuracy(np.array([1, 2]), [set(), set()])
    for text in ('{"a": 1', "[1, 2]", '[["x"]]'):
        file.write_text(text)
        with pytest.raises(ValueError, match="must be a JSON list of lists of labels"):
            evaluation.read_real_labels(file, 2, 5)
