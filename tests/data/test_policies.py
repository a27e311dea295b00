"""Policies and erasing change a picture by what is drawn, and as published."""

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.data.drawing import drawn
from vit_keras.config import AugmentConfig
from vit_keras.data import policies
from vit_keras.data.augment import box, erase
from vit_keras.data.batches import generator
from vit_keras.data.policies import OPERATIONS

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    "fields",
    [
        {"randaugment_layers": 3, "randaugment_magnitude": 12},
        {"policy": "autoaugment"},
        {"policy": "trivialaugment", "color_jitter": 0.5},
    ],
)
def test_policies_change_pictures_by_what_is_drawn(fields):
    """An image of n policies is what their operations make of it, one after the other."""
    chosen, seen = policies.chosen(AugmentConfig(**fields)), set()
    picture = Image.fromarray(load_sample_images().images[0][100:130, 100:140])
    for i in range(20):
        made, again = policies.apply(chosen, picture, generator(5, i)), generator(5, i)
        expected = picture
        for policy in chosen:
            numbers = again.random((policy.rows, 4))
            for name, *amounts in policy.steps(numbers, (30, 40)):
                expected = OPERATIONS[name](expected, *amounts)
        np.testing.assert_array_equal(made, expected)
        seen.add(made.tobytes())
    assert len(seen) > 8  # AutoAugment often does nothing, or equalizes alone
    assert policies.apply([], picture, generator(5)) is picture


def test_erased_parts_are_as_published(rng):
    size, count = (60, 90), 2000
    top, left, height, width = drawn(lambda rng: box(rng, size), count).T
    share, ratio = height * width / (60 * 90), height / width
    assert (top >= 0).all() and (top + height <= 60).all() and (left + width <= 90).all()
    area = rng.uniform(0.02, 1 / 3, 20000) * 60 * 90
    sides = np.exp(rng.uniform(np.log(0.3), -np.log(0.3), 20000))
    high, wide = np.round(np.sqrt([area * sides, area / sides]))
    fits = (high < 60) & (wide < 90)
    quantiles = np.linspace(0.1, 0.9, 9)
    for actual, values in ((share, high * wide / (60 * 90)), (np.log(ratio), np.log(high / wide))):
        expected = np.quantile(values[fits], quantiles)
        np.testing.assert_allclose(np.quantile(actual, quantiles), expected, atol=0.1)
    assert np.mean(top[height < 40] / (60 - height[height < 40])) == pytest.approx(0.5, abs=0.02)
    image = lambda: np.full((60, 90, 3), 7.0, "float32")
    changed = drawn(lambda rng: erase(image(), rng, 0.3), 300)
    noise = changed[changed != 7]
    assert (changed != 7).any((1, 2, 3)).mean() == pytest.approx(0.3, abs=0.08)
    assert noise.mean() == pytest.approx(0, abs=0.01) and noise.std() == pytest.approx(1, abs=0.01)
    erased = (changed != 7).all(axis=-1)
    for rows, columns in ((x.any(1), x.any(0)) for x in erased if x.any()):
        assert np.diff(np.flatnonzero(rows)).max(initial=1) == 1
        assert np.diff(np.flatnonzero(columns)).max(initial=1) == 1
    np.testing.assert_array_equal(
        erased.sum((1, 2)), [x.any(1).sum() * x.any(0).sum() for x in erased]
    )
