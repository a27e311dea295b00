"""Pictures are resized and cropped as by Pillow, torchvision, transformers and TensorFlow."""

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from tests.helpers import assert_close
from tests.peers import peer
from vit_keras import data
from vit_keras.data import from_arrays
from vit_keras.data.batches import generator
from vit_keras.data.cropping import ASPECT, INCEPTION_AREA, bit_crop, random_window
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once
transforms = peer("torchvision.transforms")
# Up, down, across, and by a half, where many weighted sums lie between two levels.
SIZES = [(24, 32), (57, 40), (131, 200), (64, 80), (1, 5), (301, 47), (40, 32)]
TOGETHER = 25  # pictures of random sizes that are evaluated with one model
# Groups of pictures: 300 in all, or 10,000.
GROUPS = pytest.mark.parametrize("groups", [3, pytest.param(100, marks=pytest.mark.nightly)])
INTERPOLATION = pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])


def random_sides(rng, largest):
    return tuple(np.exp(rng.uniform(0, np.log(largest + 0.5), 2)).round().astype(int).tolist())


def noise(rng, sides, channels):
    return rng.integers(0, 256, (*sides, channels), dtype="uint8")


def compare(pictures, size, theirs, **options):
    """Compares the pixels that a model of a size sees of each picture."""
    levels = Preprocessing(mean=(0.0,), std=(1 / 255,), **options)  # the model's input is pixels
    split = from_arrays(pictures, np.zeros(len(pictures), int))
    made = data.eval_batches(split, image_size=size, preprocessing=levels, batch=8)
    images = np.concatenate([images for images, _ in made])
    assert np.abs(images - images.round()).max() < 1e-3
    gray_or_rgb = [x if x.shape[-1] == 3 else x[..., 0] for x in pictures]
    expected = [np.asarray(theirs(Image.fromarray(x))) for x in gray_or_rgb]
    np.testing.assert_array_equal(images.round(), np.reshape(expected, images.shape))


@GROUPS
@INTERPOLATION
@pytest.mark.parametrize("channels", [1, 3])
def test_evaluation_has_the_bits_of_pillow_and_torchvision(groups, interpolation, channels):
    rng = np.random.default_rng([groups, channels])
    method = transforms.InterpolationMode(interpolation)
    for _ in range(groups):
        pictures = [noise(rng, random_sides(rng, 400), channels) for _ in range(TOGETHER)]
        size = random_sides(rng, 300)
        compare(pictures, size, transforms.Resize(size, method), interpolation=interpolation)
        side, fraction = int(rng.integers(1, 200)), float(rng.choice([1.0, 0.95, 0.875, 0.5]))
        whole = transforms.Resize(int(side / fraction), method)
        theirs = transforms.Compose([whole, transforms.CenterCrop(side)])
        # A long strip would be resized to gigabytes.
        pictures = [p for p in pictures if max(p.shape) < 40 * min(p.shape[:2])]
        options = {"interpolation": interpolation, "crop_fraction": fraction}
        compare(pictures, (side, side), theirs, **options)


@INTERPOLATION
@pytest.mark.parametrize("antialias", [False, True])
def test_levels_that_are_not_rounded_are_tensorflows(rng, interpolation, antialias):
    import tensorflow as tf

    options = Preprocessing(interpolation=interpolation, antialias=antialias, rounding="none")
    # TensorFlow takes the weights of bicubic interpolation from a table of 1,024 places.
    rtol = 8e-4 if (interpolation, antialias) == ("bicubic", False) else 4e-6
    for sides in SIZES:
        for pixels in (noise(rng, sides, 3), rng.uniform(0, 255, (*sides, 2)).astype("float32")):
            theirs = tf.image.resize(pixels, (32, 40), interpolation, antialias=antialias).numpy()
            least, most = (0, 255) if pixels.dtype == np.uint8 else (pixels.min(), pixels.max())
            actual = data.resize(pixels, (32, 40), options)
            assert_close(actual, np.clip(theirs, least, most), rtol=rtol)


def published_crop(sides, side, fraction, rounding):
    """The sides before the crop and the corner by the formulas in the projects' code."""
    short = int(side / fraction)
    scaled = [short if edge == min(sides) else int(short * edge / min(sides)) for edge in sides]
    if rounding == "torchvision":
        return scaled, [round((edge - side) / 2.0) for edge in scaled]
    return scaled, [(edge - side) // 2 for edge in scaled]


@pytest.mark.parametrize("rounding", ["torchvision", "transformers"])
@pytest.mark.parametrize(("side", "fraction"), [(224, 0.875), (240, 0.95), (336, 1.0)])
def test_crops_are_those_of_the_projects(rng, side, fraction, rounding):
    options = Preprocessing(crop_fraction=fraction, rounding=rounding)
    for sides in [(480, 640), *rng.integers(side // 2, 2000, (50, 2)).tolist()]:
        scaled, corner = published_crop(sides, side, fraction, rounding)
        seen = data.seen_part(sides, (side, side), options)
        expected = [c / s for c, s in zip(corner, scaled)] + [side / s for s in scaled]
        np.testing.assert_allclose(seen, expected, rtol=1e-12)


COUNT = 1000


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
    [((60, 200), INCEPTION_AREA), ((90, 61), (0.25, 1.0)), ((224, 224), (0.05, 0.25))],
)
def test_windows_have_the_law_of_tensorflow(sides, area):
    """Places are compared as shares of the free ones, whose last one TensorFlow never takes."""
    theirs = tensorflows(sides, area)
    ours = np.array([random_window(sides, generator(3, i), area) for i in range(COUNT)])
    compare_laws("height", ours[:, 2], theirs[:, 2])
    compare_laws("width", ours[:, 3], theirs[:, 3])
    compare_laws("area", ours[:, 2] * ours[:, 3], theirs[:, 2] * theirs[:, 3])
    compare_laws("aspect ratio", ours[:, 3] / ours[:, 2], theirs[:, 3] / theirs[:, 2])
    for axis in range(2):
        shares = []
        for windows, places in ((ours, 1), (theirs, 0)):
            free = sides[axis] - windows[:, 2 + axis] + places
            shares.append(((windows[:, axis] + 0.5) / np.maximum(free, 1))[free > 10])
        compare_laws(f"place on axis {axis}", *shares)


def compare_laws(name, ours, theirs):
    """Bounds the largest difference of two distributions, at p = 1e-4."""
    statistic = stats.ks_2samp(ours, theirs).statistic
    farthest = np.sqrt(-np.log(1e-4 / 2) / 2 * (1 / len(ours) + 1 / len(theirs)))
    assert min(len(ours), len(theirs)) > 50 and statistic < farthest, f"{name}: {statistic:.3f}"


@pytest.mark.parametrize("area", [INCEPTION_AREA, (0.3, 0.4), (1.0, 1.0)])
@pytest.mark.parametrize("sides", [(1, 1), (3, 4), (1, 1000), (1000, 3), (4000, 6000)])
def test_windows_stay_within_pictures_of_any_size(sides, area):
    for i in range(100):
        top, left, height, width = window = random_window(sides, generator(9, i), area)
        assert 0 <= top <= sides[0] - height and 0 <= left <= sides[1] - width
        if window != (0, 0, *sides):
            share = height * width / (sides[0] * sides[1])
            assert area[0] - 1e-9 <= share <= area[1] + 1e-9
            assert (width - 0.5) / height <= ASPECT[1] and (width + 0.5) / height >= ASPECT[0]


@pytest.mark.parametrize(
    ("sides", "resized"), [((95, 95), (40, 60)), ((96, 96), (34, 51)), ((1, 9000), (40, 60))]
)
def test_the_rule_of_bit_crops_from_128_of_160_or_480_of_512(sides, resized):
    places = []
    for i in range(2000):
        size, (top, left, height, width) = bit_crop(sides, (32, 48), generator(5, i))
        assert size == resized and (height, width) == (32, 48)
        places.append((top, left))
    for column, free in zip(np.array(places).T, np.subtract(resized, (32, 48)) + 1):
        counts = np.bincount(column, minlength=free)
        assert len(counts) == free and stats.chisquare(counts).pvalue > 1e-4
