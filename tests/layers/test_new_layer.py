"""The example of a new layer in CONTRIBUTING.md works as it stands there."""

import re

import keras
import numpy as np
import pytest

from tests.helpers import ROOT, assert_close
from tests.layers import test_harness
from vit_keras.inspection import costs


@pytest.fixture
def example(monkeypatch):
    """The names that the page's code defines; what it registers is removed after the test."""
    monkeypatch.setattr(costs, "RULES", dict(costs.RULES))
    monkeypatch.setattr(test_harness, "CASES", dict(test_harness.CASES))
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page.partition("\n## A new layer\n")[2].partition("\n## ")[0]
    names = {"__name__": "example"}
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(code, names)
    yield names
    del keras.saving.get_custom_objects()["vit_keras>TokenMixing"]


def test_the_example_passes_the_tests_of_every_layer_and_computes_its_formula(example, rng):
    case = test_harness.CASES["TokenMixing"]
    test_harness.check_contract(example["TokenMixing"], case)
    test_harness.check_cost(example["TokenMixing"], case)
    layer = example["TokenMixing"](seed=1)
    x = rng.normal(size=(2, 6, 12)).astype("float32")
    layer.build(x.shape)
    kernel = rng.normal(size=(6, 6)).astype("float32")
    layer.kernel.assign(kernel)
    expected = x + np.stack([kernel.T @ image for image in x])
    assert_close(layer(x), expected, rtol=2e-6)
