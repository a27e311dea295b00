"""Random parts of pictures have TensorFlow's law, and stay within every picture."""

import numpy as np
import pytest
from scipy import stats

from vit_keras.data.batches import generator
from vit_keras.data.transforms import ASPECT, INCEPTION_AREA, bit_crop, random_window

pytestmark = pytest.mark.once
COUNT = 1500


def tensorflows(sides, area):
    """Top, left, height, and width of `COUNT` windows, `(COUNT, 4)`."""
    import tensorflow as tf

    @tf.function
    def draw(number):
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            (*sides, 3),
            tf.zeros((0, 0, 4)),
            tf.stack([number, 7]),
            min_object_covered=0.0,
            area_range=area,
            use_image_if_no_bounding_boxes=True,
        )
        return tf.concat([begin[:2], size[:2]], axis=0)

    return tf.map_fn(draw, tf.range(COUNT)).numpy()


@pytest.mark.parametrize(
    ("sides", "area"),
    [
        ((480, 640), INCEPTION_AREA),
        ((60, 200), INCEPTION_AREA),
        ((90, 61), (0.25, 1.0)),
        ((224, 224), (0.05, 0.25)),
    ],
)
def test_windows_have_the_law_of_tensorflow(sides, area):
    """Places are compared as shares of the free ones, whose last one TensorFlow never takes."""
    theirs = tensorflows(sides, area)
    ours = np.array([random_window(sides, generator(3, i), area) for i in range(COUNT)])
    compare("height", ours[:, 2], theirs[:, 2])
    compare("width", ours[:, 3], theirs[:, 3])
    compare("area", ours[:, 2] * ours[:, 3], theirs[:, 2] * theirs[:, 3])
    compare("aspect ratio", ours[:, 3] / ours[:, 2], theirs[:, 3] / theirs[:, 2])
    for axis in range(2):
        shares = []
        for windows, places in ((ours, 1), (theirs, 0)):
            free = sides[axis] - windows[:, 2 + axis] + places
            shares.append(((windows[:, axis] + 0.5) / np.maximum(free, 1))[free > 10])
        compare(f"place on axis {axis}", *shares)


def compare(name, ours, theirs):
    """Bounds the largest difference of two distributions, at p = 1e-4."""
    statistic = stats.ks_2samp(ours, theirs).statistic
    farthest = np.sqrt(-np.log(1e-4 / 2) / 2 * (1 / len(ours) + 1 / len(theirs)))
    assert min(len(ours), len(theirs)) > 50 and statistic < farthest, f"{name}: {statistic:.3f}"


@pytest.mark.parametrize("area", [INCEPTION_AREA, (0.3, 0.4), (1.0, 1.0)])
@pytest.mark.parametrize(
    "sides", [(1, 1), (1, 2), (2, 2), (3, 4), (1, 1000), (1000, 3), (5, 7), (4000, 6000)]
)
def test_windows_stay_within_pictures_of_any_size(sides, area):
    for i in range(200):
        window = random_window(sides, generator(9, i), area)
        assert all(isinstance(number, int) for number in window)
        top, left, height, width = window
        assert 0 <= top <= sides[0] - height and 0 <= left <= sides[1] - width
        assert height > 0 and width > 0
        if window != (0, 0, *sides):
            share = height * width / (sides[0] * sides[1])
            assert area[0] - 1e-9 <= share <= area[1] + 1e-9
            assert (width - 0.5) / height <= ASPECT[1] and (width + 0.5) / height >= ASPECT[0]


@pytest.mark.parametrize(
    ("sides", "resized"), [((95, 95), (40, 60)), ((96, 96), (34, 51)), ((1, 9000), (40, 60))]
)
def test_the_rule_of_bit_crops_from_128_of_160_or_480_of_512(sides, resized):
    """Small pictures have fewer than 96 x 96 pixels."""
    places = []
    for i in range(2000):
        size, (top, left, height, width) = bit_crop(sides, (32, 48), generator(5, i))
        assert size == resized and (height, width) == (32, 48)
        places.append((top, left))
    for axis in range(2):
        counts = np.bincount(
            np.array(places)[:, axis], minlength=resized[axis] - (32, 48)[axis] + 1
        )
        assert len(counts) == resized[axis] - (32, 48)[axis] + 1
        assert stats.chisquare(counts).pvalue > 1e-4
